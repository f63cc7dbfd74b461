#include <algorithm>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

constexpr const char* kTerms = "branch.out";  // workspace of the terms of a sum
constexpr const char* kSum = "branch.part";   // and of this rank's rows of the sum

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
    std::vector<Node> before = std::move(graphs_.forward);
    graphs_.forward.clear();
    for (Node& node : before) {
      const Dim outputs = node.is_linear ? graphs_.of(node.operands[1].slice).rows.dim : Dim::none;
      const Dim inputs = node.is_linear ? graphs_.of(node.operands[1].slice).cols.dim : Dim::none;
      const bool is_embedding = std::holds_alternative<Embedding>(node.work);
      if (layout_.cuts(outputs)) enter(node);
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
    made.move = move;
    made.id = graphs_.next++;
    return made;
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
      Value value = graphs_.of(x);
      value.name = "gathered";
      value.is_whole = value.is_gathered = true;
      value.role = TensorRole::none;
      value.cols = {Dim::none, x.cols};
      graphs_.of(x).gradient += ".part";
      graphs_.of(x).gradient_role = TensorRole::none;
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
    if (terms.name == kTerms) graphs_.of(y).name = kSum;
    terms.name = kTerms;
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
  std::vector<std::pair<Slice, Slice>> entered_;  // what a rank has of a value → all rows of it
};

}  // namespace

void share_tensor(LayerGraphs& graphs, const Layout& layout) {
  move_bias(graphs.forward);
  if (layout.tp > 1) ShareTensor(graphs, layout).run();
}

}  // namespace stretto::passes
