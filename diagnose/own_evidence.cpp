#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>

#include "diagnose/evidence.hpp"

namespace stretto::diagnose {
namespace {

using trace::KernelClass;

// The work of an operation, as report/trace.hpp writes it: "gemm 512x384x512 nt", "route forward rows 512 8 of 128 …".
class Words {
 public:
  explicit Words(std::string_view text) {
    while (!text.empty()) {
      const std::size_t space = std::min(text.find(' '), text.size());
      if (space > 0) words_.push_back(text.substr(0, space));
      text.remove_prefix(std::min(space + 1, text.size()));
    }
  }
  std::string_view at(std::size_t i) const { return i < words_.size() ? words_[i] : std::string_view(); }
  bool has(std::string_view word) const { return std::find(words_.begin(), words_.end(), word) != words_.end(); }
  // Numbers of a word with 'x' in between; 0 for what is no number.
  std::vector<std::int64_t> sizes(std::size_t i) const {
    std::vector<std::int64_t> sizes(3, 0);
    std::string_view text = at(i);
    for (std::int64_t& size : sizes) {
      const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (problem != std::errc()) break;
      text.remove_prefix(std::min(static_cast<std::size_t>(end - text.data()) + 1, text.size()));
    }
    return sizes;
  }
  // The number after a word, 0 without one.
  std::int64_t after(std::string_view word) const {
    const auto found = std::find(words_.begin(), words_.end(), word);
    return found == words_.end() ? 0 : sizes(static_cast<std::size_t>(found - words_.begin()) + 1)[0];
  }

 private:
  std::vector<std::string_view> words_;
};

SeenWeight& weight_of(std::vector<SeenWeight>& weights, std::int64_t in, std::int64_t out) {
  const auto found =
      std::find_if(weights.begin(), weights.end(), [&](const auto& w) { return w.in == in && w.out == out; });
  return found == weights.end() ? weights.emplace_back(SeenWeight{in, out}) : *found;
}

bool are_sides(const std::vector<std::int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t side) { return within(side, kMostRows) > 0; }) &&
         std::count_if(sizes.begin(), sizes.end(), [](std::int64_t side) { return side > kMostWidth; }) <= 1;
}

// A product of a pass, whole or a piece: "nt" is forward, "tn" the weight's gradient, "nn" the input's.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
};

class Reader {
 public:
  explicit Reader(const trace::RankTrace& rank) : rank_(rank) {
    seen_.rank = rank.rank;
    seen_.ranks = rank.ranks;
  }

  Evidence read() {
    for (const trace::Kernel& kernel : rank_.kernels) {
      const std::string& name = rank_.name_of(kernel);
      const Words words(std::string_view(name).substr(std::min(name.find('\n') + 1, name.size())));
      if (trace::is_communication(kernel.cls))
        add_message(kernel, words);
      else
        add(kernel, words);
    }
    add_weights();
    for (const auto& [key, count] : messages_) {
      const auto& [group, members, elements, cls, bytes] = key;
      seen_.messages.push_back({group, members, elements, cls, bytes, count});
    }
    return std::move(seen_);
  }

 private:
  void add_message(const trace::Kernel& kernel, const Words& words) {
    if (kernel.message < 0) return;
    const trace::Message& of = rank_.messages[static_cast<std::size_t>(kernel.message)];
    const std::int64_t elements = words.sizes(1)[0];
    // A message is counted once, by its sender.
    if (words.at(0) == "receive") return;
    ++messages_[{of.group, of.group_size, elements, kernel.cls, kernel.element_bytes}];
  }

  void add(const trace::Kernel& kernel, const Words& words) {
    const std::string_view kind = words.at(0), pass = words.at(1);
    const bool is_forward = pass == "forward";
    if (kind == "gemm") {
      const auto sizes = words.sizes(1);
      if (seen_.product_bytes == 0) seen_.product_bytes = kernel.element_bytes;
      seen_.has_biases = seen_.has_biases || words.has("+bias");
      if (!are_sides(sizes)) return;
      if (words.at(2) == "nt") forward_.push_back({sizes[0], sizes[1], sizes[2]});
      if (words.at(2) == "tn") gradients_.push_back({sizes[0], sizes[1], sizes[2]});
    } else if (kind == "grouped_gemm") {
      const auto sizes = words.sizes(2);
      if (!are_sides(sizes)) return;
      SeenWeight& weight = weight_of(seen_.experts.weights, sizes[2], sizes[1]);
      if (is_forward) ++weight.forward;
      if (is_forward) seen_.experts.rows = sizes[0];
      if (pass == "wgrad") ++weight.gradients;
      seen_.experts.local = within(words.after("in"), kMostExperts);
    } else if (kind == "attention" || kind == "attention_scores" || kind == "attention_dq") {
      SeenAttention& a = seen_.attention;
      a.batch = within(words.after("batch"), kMostHeads);
      a.heads = within(words.after("heads"), kMostHeads);
      a.kv_heads = words.has("kv") ? within(words.after("kv"), kMostHeads) : a.heads;
      a.seq = within(words.after("seq"), kMostWidth);
      a.dim = within(words.after("dim"), kMostDim);
      a.value_dim = words.has("values") ? within(words.after("values"), kMostDim) : a.dim;
      (kind == "attention_scores" || (kind == "attention" && is_forward) ? a.forward : a.backward) += 1;
    } else if (kind == "embedding") {
      seen_.vocabulary = within(words.after("vocab"), kMostWidth);
      seen_.has_positions = !words.has("without");
      if (is_forward) ++seen_.embeddings;
    } else if (kind == "cross_entropy") {
      ++seen_.losses;
    } else if (kind == "route" && is_forward) {
      seen_.experts.routed_rows = within(words.after("rows"), kMostRows);
      seen_.experts.topk = within(words.sizes(4)[0], kMostExperts);
      seen_.experts.experts = within(words.after("of"), kMostExperts);
      seen_.experts.is_sigmoid = words.has("sigmoid");
    }
    seen_.has_rms_norm = seen_.has_rms_norm || kind == "rmsnorm";
    seen_.has_layer_norm = seen_.has_layer_norm || kind == "layernorm";
    seen_.has_head_norms = seen_.has_head_norms || ((kind == "rmsnorm" || kind == "layernorm") && words.has("heads"));
    seen_.has_rope = seen_.has_rope || kind == "rope";
    seen_.has_gates = seen_.has_gates || kind == "swiglu" || (kind == "weighted_activation" && words.has("gated"));
  }

  // Weight gradients are whole even where an overlap cuts the products of a layer: their k is the tokens.
  void add_weights() {
    std::map<std::int64_t, std::int64_t> count_of;
    for (const Product& product : gradients_) ++count_of[product.k];
    std::int64_t most = 0;
    for (const auto& [rows, count] : count_of)
      if (count > most) {
        most = count;
        seen_.tokens = rows;
      }
    for (const Product& product : gradients_) ++weight_of(seen_.weights, product.n, product.m).gradients;
    if (seen_.tokens == 0) return;
    // Pieces of a product are of equal k, and add up to its volume.
    for (const Product& product : forward_)
      for (SeenWeight& weight : seen_.weights)
        if (weight.in == product.k && weight.out % product.n == 0) {
          const bool is_whole = weight.out == product.n;
          if (!is_whole && is_out(product.n)) continue;
          weight.forward += double(product.m) * double(product.n) / (double(seen_.tokens) * double(weight.out));
          break;
        }
  }
  bool is_out(std::int64_t n) const {
    return std::any_of(seen_.weights.begin(), seen_.weights.end(), [n](const auto& w) { return w.out == n; });
  }

  const trace::RankTrace& rank_;
  Evidence seen_;
  std::vector<Product> forward_, gradients_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, KernelClass, int>, double> messages_;
};

}  // namespace

Evidence own_evidence(const trace::RankTrace& rank) { return Reader(rank).read(); }

}  // namespace stretto::diagnose
