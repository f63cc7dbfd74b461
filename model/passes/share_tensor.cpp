#include <algorithm>
#include <map>
#include <tuple>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

constexpr const char* kTerms = "branch.out";   // workspace of the terms of a sum
constexpr const char* kShared = "shared_key";  // columns that heads of all ranks share
constexpr const char* kSum = "branch.part";    // and of this rank's rows of the sum

// Gives the addition to the residual stream the bias of its product.
void move_bias(std::vector<Node>& forward) {
  for (Node& addition : forward) {
    if (!addition.adds_to_stream) continue;
    const ValueId branch = addition.operands[1].slice.value;
    const auto product = std::find_if(forward.begin(), forward.end(),
                                      [&](const Node& n) { return n.is_linear && n.result().value == branch; });
    if (product == forward.end() || !std::get<Gemm>(product->work).bias) continue;
    std::get<Gemm>(product->work).bias = false;
    product->late_bias = product->operands[2].slice;
    addition.operands.insert(addition.operands.begin() + 2, product->operands[2]);
    product->operands.erase(product->operands.begin() + 2);
    if (auto* dropout = std::get_if<Dropout>(&addition.work)) dropout->bias = true;
    if (auto* sum = std::get_if<Elementwise>(&addition.work)) sum->fn = ElementwiseFn::bias_add;
  }
}

class ShareTensor {
 public:
  ShareTensor(LayerGraphs& graphs, const Layout& layout) : graphs_(graphs), layout_(layout) {}

  void run() {
    if (layout_.sequence_parallel) name_part_gradients();
    std::vector<Node> before = std::move(graphs_.forward);
    graphs_.forward.clear();
    for (Node& node : before) {
      const Dim outputs = node.is_linear ? graphs_.of(node.operands[1].slice).rows.dim : Dim::none;
      const Dim inputs = node.is_linear ? graphs_.of(node.operands[1].slice).cols.dim : Dim::none;
      const bool is_embedding = std::holds_alternative<Embedding>(node.work);
      if (layout_.cuts(outputs)) enter(node);
      if (!node.is_linear) enter_shared(node);
      if (std::holds_alternative<CrossEntropy>(node.work)) share_vocabulary(node);
      graphs_.forward.push_back(node);
      if (layout_.cuts(inputs) || is_embedding) leave();
    }
  }

 private:
  Node like(const Node& node, const char* what, Move move, CollectiveKind kind) {
    Node made;
    made.work = Collective{.kind = kind};
    made.base = node.base;
    made.what = what;
    made.module = node.module;
    made.section = node.section;
    made.branch = node.branch;
    made.function = node.function;
    made.concurrent_half = node.concurrent_half;
    made.move = move;
    made.id = graphs_.next++;
    return made;
  }

  // The gradient of a norm's result, and of the stream where there is no norm, is that of this rank's rows; the name
  // without ".part" is for all rows.
  void name_part_gradients() {
    for (const Node& node : graphs_.forward)
      if (std::holds_alternative<LayerNorm>(node.work) || std::holds_alternative<RmsNorm>(node.work))
        name_part_gradient(node.operands[node.operands.size() - 2].slice.value);
      else if (node.from != node.to && graphs_.of(node.from).kind == ValueKind::given && graphs_.of(node.to).alias_of)
        name_part_gradient(node.to.value);
  }
  void name_part_gradient(ValueId id) {
    Value& value = graphs_.values[id];
    if (!layout_.cuts_tokens_of(value) || gradients_.contains(id)) return;
    gradients_[id] = {value.gradient, value.gradient_role};
    value.gradient += ".part";
    value.gradient_role = TensorRole::none;
  }

  // Columns that every rank has in full and that heads of all ranks read: what a rank's own heads add to their gradient
  // is summed. With sequence parallelism they are copied, because a collective needs them contiguous, and gathered.
  void enter_shared(Node& node) {
    const bool is_cut = std::any_of(node.operands.begin(), node.operands.end(), [&](const Operand& o) {
      return o.writes() && layout_.cuts(graphs_.of(o.slice).cols.dim);
    });
    if (!is_cut) return;
    for (Operand& operand : node.operands) {
      const Value& of = graphs_.of(operand.slice);
      if (operand.mode != AccessMode::read || of.kind != ValueKind::activation || layout_.cuts(of.cols.dim) ||
          layout_.cuts(of.rows.dim))
        continue;
      const Slice x = operand.slice;
      Value all = of;
      all.name = kShared;
      all.gradient = std::string("d_") + kShared;
      all.cols.size = x.cols;
      Value part = all;
      all.is_whole = true;
      if (!layout_.sequence_parallel) all.alias_of = x;
      const Slice to = graphs_.whole(graphs_.add(all));
      Node gather = like(node, "all_gather", Move::enter, CollectiveKind::all_gather);
      gather.base = kShared;
      gather.from = x;
      gather.to = to;
      if (layout_.sequence_parallel) {
        part.name += ".part";
        part.gradient += ".part";
        gather.from = graphs_.whole(graphs_.add(part));
        Node copy = like(node, "fprop", Move::none, CollectiveKind::all_gather);
        copy.base = kShared;
        copy.work = Cast{};
        copy.operands = {reads(x), writes(gather.from)};
        gather.operands = {reads(gather.from), writes(to)};
        graphs_.forward.push_back(std::move(copy));
      }
      graphs_.forward.push_back(std::move(gather));
      operand.slice = to;
    }
  }

  // All products of one value share what enters, so that its gradient is summed once.
  void enter(Node& node) {
    const Slice x = node.operands[0].slice;
    const auto known = std::find_if(entered_.begin(), entered_.end(), [&](const auto& e) { return e.first == x; });
    if (known != entered_.end()) {
      node.operands[0].slice = known->second;
      return;
    }
    Slice all = x;
    Node gather = like(node, "all_gather", Move::enter, CollectiveKind::all_gather);
    if (layout_.sequence_parallel) {
      name_part_gradient(x.value);
      Value value = graphs_.of(x);
      value.name = "gathered";
      value.is_whole = value.is_gathered = true;
      value.alias_of.reset();
      value.role = TensorRole::none;
      value.cols = {Dim::none, x.cols};
      std::tie(value.gradient, value.gradient_role) = gradients_.at(x.value);
      all = graphs_.whole(graphs_.add(std::move(value)));
      gather.operands = {reads(x), writes(all)};
    }
    entered_.emplace_back(x, all);
    gather.from = x;
    gather.to = all;
    graphs_.forward.push_back(std::move(gather));
    node.operands[0].slice = all;
  }

  void leave() {
    Node& node = graphs_.forward.back();
    const auto result = std::find_if(node.operands.rbegin(), node.operands.rend(),
                                     [](const Operand& o) { return o.mode == AccessMode::write; });
    const Slice y = result->slice;
    if (!layout_.sequence_parallel) {
      Node sum = like(node, "all_reduce", Move::leave, CollectiveKind::all_reduce);
      sum.operands = {adds(y)};
      sum.from = sum.to = y;
      graphs_.forward.push_back(std::move(sum));
      return;
    }
    Value terms = graphs_.of(y);
    const bool has_own_terms = !terms.terms.empty();
    if (terms.given == Given::none && !has_own_terms) graphs_.of(y).name = kSum;
    terms.name = has_own_terms ? terms.terms : kTerms;
    terms.kind = ValueKind::activation;
    terms.given = Given::none;
    terms.is_whole = true;
    const Slice partial = graphs_.whole(graphs_.add(std::move(terms)));
    result->slice = partial;
    Node sum = like(node, "reduce_scatter", Move::leave, CollectiveKind::reduce_scatter);
    sum.operands = {reads(partial), writes(y)};
    sum.from = partial;
    sum.to = y;
    graphs_.forward.push_back(std::move(sum));
  }

  // Every rank has the statistics of its slice of the vocabulary, and the loss needs all of them.
  void share_vocabulary(Node& loss) {
    const std::int64_t each = 3 * layout_.tokens;
    Value stats{.name = "vocab_stats",
                .gradient = {},
                .rows = {Dim::none, layout_.tp},
                .cols = {Dim::none, each},
                .kind = ValueKind::statistics};
    const Slice all = graphs_.whole(graphs_.add(std::move(stats)));
    Slice own = all;
    own.rows = 1;
    own.offset = layout_.tp_place * Expr(each);
    const auto& work = std::get<CrossEntropy>(loss.work);
    Node count = like(loss, "", Move::none, CollectiveKind::all_gather);
    count.base = "vocab_stats";
    count.work = VocabStats{.classes = work.classes, .masked = work.masked};
    count.operands = {reads(loss.operands[0].slice), loss.operands[1], writes(own)};
    Node gather = like(count, "all_gather", Move::gather, CollectiveKind::all_gather);
    gather.operands = {reads(own), writes(all)};
    loss.operands.insert(loss.operands.begin() + 2, reads(all));
    graphs_.forward.push_back(std::move(count));
    graphs_.forward.push_back(std::move(gather));
  }

  LayerGraphs& graphs_;
  const Layout& layout_;
  std::map<ValueId, std::pair<std::string, TensorRole>> gradients_;  // of all rows
  std::vector<std::pair<Slice, Slice>> entered_;                     // what a rank has of a value → all rows of it
};

}  // namespace

void share_tensor(LayerGraphs& graphs, const Layout& layout) {
  move_bias(graphs.forward);
  if (layout.tp > 1) ShareTensor(graphs, layout).run();
}

}  // namespace stretto::passes
