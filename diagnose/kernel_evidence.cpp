#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "diagnose/evidence.hpp"
#include "diagnose/period.hpp"
#include "trace/shapes.hpp"

namespace stretto::diagnose {
namespace {

using trace::KernelClass;

// Returns whether the text has the word, in any case.
bool names(std::string_view text, std::string_view word) {
  const auto is_equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), is_equal) != text.end();
}

using WeightSides = std::pair<std::int64_t, std::int64_t>;  // the smaller one first
WeightSides in_order(std::int64_t a, std::int64_t b) { return {std::min(a, b), std::max(a, b)}; }

class KernelReader {
 public:
  explicit KernelReader(const trace::RankTrace& rank) : rank_(rank) {
    seen_.rank = rank.rank;
    seen_.ranks = rank.ranks;
  }

  Evidence read() {
    const std::vector<Period> periods = find_periods(rank_);
    std::set<std::uint32_t> names;
    for (const std::uint32_t index : periods.back().kernels) {
      const trace::Kernel& kernel = rank_.kernels[index];
      if (names.insert(kernel.name).second) add_library(seen_, rank_.name_of(kernel));
      add(kernel);
    }
    add_weights();
    finish_experts();
    seen_.embeddings = double(embeddings_.size());
    for (const auto& [bytes, count] : bytes_)
      if (seen_.product_bytes == 0 || count > bytes_[seen_.product_bytes]) seen_.product_bytes = bytes;
    for (const auto& [key, count] : messages_) {
      const auto& [group, members, elements, cls, bytes] = key;
      seen_.messages.push_back({group, members, elements, cls, bytes, count});
    }
    return std::move(seen_);
  }

 private:
  void add(const trace::Kernel& kernel) {
    if (kernel.message >= 0) {
      const trace::Message& of = rank_.messages[static_cast<std::size_t>(kernel.message)];
      ++messages_[{of.group, of.group_size, std::max(of.in_elements, of.out_elements), kernel.cls, of.element_bytes}];
      return;
    }
    const std::string& name = rank_.name_of(kernel);
    if (kernel.call >= 0 && rank_.calls[static_cast<std::size_t>(kernel.call)].name == "aten::embedding")
      embeddings_.insert(kernel.call);
    seen_.has_rope = seen_.has_rope || kernel.cls == KernelClass::rope;
    seen_.has_gates = seen_.has_gates || (kernel.cls == KernelClass::activation && !names(name, "gelu"));
    const bool is_norm = kernel.cls == KernelClass::norm_forward || kernel.cls == KernelClass::norm_backward;
    const bool is_rms = names(name, "rms");
    seen_.has_rms_norm = seen_.has_rms_norm || (is_norm && is_rms);
    seen_.has_layer_norm = seen_.has_layer_norm || (is_norm && !is_rms);
    if (kernel.cls == KernelClass::attention_backward) ++seen_.attention.backward;
    if (kernel.cls == KernelClass::attention_forward) {
      ++seen_.attention.forward;
      if (kernel.call >= 0) add_attention(rank_.calls[static_cast<std::size_t>(kernel.call)]);
    }
    if (kernel.cls != KernelClass::gemm) return;
    if (kernel.call >= 0 && add_grouped(rank_.calls[static_cast<std::size_t>(kernel.call)])) return;
    if (const int bytes = trace::operand_bytes_of(rank_, kernel); bytes > 0) ++bytes_[bytes];
    if (const auto product = trace::product_of(rank_, kernel)) {
      if (std::max({product->m, product->n, product->k}) > double(kMostWidth)) return;
      products_.push_back(*product);
      const trace::HostCall& call = rank_.calls[static_cast<std::size_t>(kernel.call)];
      seen_.has_biases = seen_.has_biases || call.name == "aten::addmm";
    }
  }

  // q and k: [batch, heads, tokens, dim] in PyTorch, [batch, tokens, heads, dim] in FlashAttention's own operator.
  void add_attention(const trace::HostCall& call) {
    if (call.shapes.size() < 2 || call.shapes[0].size() != 4 || call.shapes[1].size() != 4) return;
    const std::size_t heads = call.name.starts_with("aten::") ? 1 : 2;
    SeenAttention& a = seen_.attention;
    a.batch = within(call.shapes[0][0], kMostHeads);
    a.heads = within(call.shapes[0][heads], kMostHeads);
    a.kv_heads = within(call.shapes[1][heads], kMostHeads);
    a.seq = within(call.shapes[0][3 - heads], kMostWidth);
    a.dim = a.value_dim = within(call.shapes[0][3], kMostDim);
  }

  // PyTorch's grouped product of a rank's experts: rows [rows, k] with weights [experts, k, n], or, of a gradient of
  // the weights, [k, rows] with [rows, n]. The first product of a pair of sides is forward, as of other weights.
  bool add_grouped(const trace::HostCall& call) {
    if (call.name != "aten::_grouped_mm" || call.shapes.size() < 2) return false;
    const auto &a = call.shapes[0], &b = call.shapes[1];
    if (a.size() != 2 || (b.size() != 2 && b.size() != 3)) return false;
    const std::int64_t in = within(b.size() == 3 ? b[1] : a[0], kMostWidth), out = within(b.back(), kMostWidth);
    if (in == 0 || out == 0) return false;
    auto found = std::find_if(seen_.experts.weights.begin(), seen_.experts.weights.end(),
                              [&](const SeenWeight& w) { return in_order(w.in, w.out) == in_order(in, out); });
    if (b.size() == 2) {
      if (found != seen_.experts.weights.end()) ++found->gradients;
      return true;
    }
    if (found == seen_.experts.weights.end()) found = seen_.experts.weights.insert(found, SeenWeight{in, out});
    if (found->in == in && (in != out || found->gradients == 0)) ++found->forward;
    seen_.experts.local = within(b[0], kMostExperts);
    if (seen_.experts.rows == 0) seen_.experts.rows = within(a[0], kMostRows);
    return true;
  }

  // The router's weight has the experts as its outputs: of those that begin in the experts' inputs the smallest, of a
  // multiple of the rank's experts.
  void finish_experts() {
    SeenExperts& experts = seen_.experts;
    if (experts.local == 0 || experts.weights.empty()) return;
    const std::int64_t hidden = experts.weights.front().in;
    for (const SeenWeight& weight : seen_.weights)
      if (weight.in == hidden && weight.out <= kMostExperts && weight.out % experts.local == 0 &&
          (experts.experts == 0 || weight.out < experts.experts))
        experts.experts = weight.out;
    if (experts.experts == 0 || seen_.tokens == 0) return;
    experts.routed_rows = seen_.tokens;
    // Ranks that share all experts have as many rows as their own tokens choose, when loads are equal.
    experts.topk = within(experts.rows / seen_.tokens, experts.experts);
    if (experts.topk == 0) experts.experts = 0;
  }

  // A product is A[m,k] · B[k,n]. The tokens are m of forward products and input gradients, and k of weight gradients,
  // never n; each side of a weight is n at times. So they are the size that is m or k most often.
  void add_weights() {
    std::map<double, std::int64_t> count_of;
    for (const trace::Product& product : products_) {
      ++count_of[product.m];
      if (product.k != product.m) ++count_of[product.k];
    }
    std::int64_t most = 0;
    double tokens = 0;
    for (const auto& [size, count] : count_of)
      if (count > most) {
        most = count;
        tokens = size;
      }
    seen_.tokens = static_cast<std::int64_t>(tokens);
    std::map<WeightSides, double> input_gradients, weight_gradients;
    for (const trace::Product& product : products_) {
      const auto m = static_cast<std::int64_t>(product.m), n = static_cast<std::int64_t>(product.n),
                 k = static_cast<std::int64_t>(product.k);
      if (product.m != tokens) {
        if (product.k == tokens) ++weight_gradients[in_order(m, n)];
        continue;
      }
      // The forward pass precedes the backward pass, so a pair of sides is first seen in its forward product.
      const auto found = std::find_if(seen_.weights.begin(), seen_.weights.end(),
                                      [&](const auto& w) { return in_order(w.in, w.out) == in_order(k, n); });
      SeenWeight& weight = found == seen_.weights.end() ? seen_.weights.emplace_back(SeenWeight{k, n}) : *found;
      ++(weight.in == k ? weight.forward : input_gradients[in_order(k, n)]);
    }
    for (SeenWeight& weight : seen_.weights) {
      const WeightSides sides = in_order(weight.in, weight.out);
      weight.gradients = std::max(input_gradients[sides], weight_gradients[sides]);
      if (weight.in == weight.out) weight.forward -= weight.gradients;  // both ways look equal
    }
  }

  const trace::RankTrace& rank_;
  Evidence seen_;
  std::vector<trace::Product> products_;
  std::map<int, std::int64_t> bytes_;
  std::set<std::int32_t> embeddings_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, KernelClass, int>, double> messages_;
};

}  // namespace

Evidence kernel_evidence(const trace::RankTrace& rank) { return KernelReader(rank).read(); }

}  // namespace stretto::diagnose
