#include <iterator>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

// The nodes of unfused attention; AttentionProduct, Softmax and Dropout in model/ops have the equations.
std::vector<Node> separate(LayerGraphs& graphs, const Node& fused) {
  const auto& work = std::get<Attention>(fused.work);
  const Slice &qkv = fused.operands[0].slice, &out = fused.operands[1].slice;
  const Extent rows{Dim::heads, work.batch * work.heads * work.seq};
  const auto add = [&](const char* name, const char* gradient, std::int64_t cols, ValueKind kind) {
    return graphs.whole(
        graphs.add({.name = name, .gradient = gradient, .rows = rows, .cols = {Dim::none, cols}, .kind = kind}));
  };
  std::vector<Node> nodes;
  const auto emit = [&](const char* base, const char* what, Work of, std::vector<Operand> operands) {
    Node node = fused;
    node.id = graphs.next++;
    node.base = base;
    node.what = what;
    node.work = std::move(of);
    node.operands = std::move(operands);
    nodes.push_back(std::move(node));
  };
  const auto product = [&](AttentionFactor factor) {
    return AttentionProduct{factor, work.batch, work.heads, work.kv_heads, work.seq, work.head_dim, work.causal};
  };
  const Slice scores = add("attention.scores", "d_attention.scores", work.seq, ValueKind::activation);
  const Slice p = add("attention.probabilities", "d_attention.scores", work.seq, ValueKind::activation);
  emit("attention", "scores.fprop", product(AttentionFactor::scores), {reads(qkv), writes(scores)});
  Softmax softmax{Pass::forward, 0, work.seq, work.causal};
  std::vector<Operand> operands = {reads(scores), writes(p)};
  if (work.by_document) {
    softmax.by_document = true;
    softmax.heads = work.heads;
    operands.push_back(fused.operands.back());
  }
  emit("attention.softmax", "fprop", softmax, std::move(operands));
  Slice attended = p;
  if (work.dropout > 0) {
    Dropout dropout;
    dropout.seq = work.heads * work.seq;
    dropout.probability = work.dropout;
    dropout.site = DropoutSite::attention;
    dropout.keeps_mask = true;
    const Slice mask = add("attention.mask", "", (work.seq + 3) / 4, ValueKind::integers);
    attended = add("attention.dropped", "d_attention.dropped", work.seq, ValueKind::activation);
    emit("attention.dropout", "fprop", dropout, {reads(p), fused.operands[3], writes(attended), writes(mask)});
  }
  emit("attention", "context.fprop", product(AttentionFactor::context), {reads(attended), reads(qkv), writes(out)});
  return nodes;
}

}  // namespace

void unfuse_attention(LayerGraphs& graphs, const Layout& layout) {
  if (!layout.is_unfused || layout.parts.of > 1) return;
  std::vector<Node> forward;
  for (Node& node : graphs.forward) {
    if (!std::holds_alternative<Attention>(node.work)) {
      forward.push_back(std::move(node));
      continue;
    }
    std::vector<Node> nodes = separate(graphs, node);
    std::move(nodes.begin(), nodes.end(), std::back_inserter(forward));
  }
  graphs.forward = std::move(forward);
}

}  // namespace stretto::passes
