#pragma once
#include <vector>

#include "model/graph/layout.hpp"
#include "model/lower/block_writer.hpp"
#include "model/lower/placed_values.hpp"

namespace stretto {

// Returns the cuts and choices of one rank, but for recomputation and deferred weight gradients, which only layers
// have.
Layout layout_of(const Schedule& schedule, const BlockShape& shape);

// Returns how layers of a kind share a sequence.
ContextCut context_cut(const ContextKind& kind);

// Returns the low precision of layers; which kinds have it (CodesOf::acts) is the caller's.
CodesOf codes_of(const BlockShape& shape);

// Returns [BlockShape::kinds] the graphs of each kind of layer, after all passes.
std::vector<LayerGraphs> layer_graphs(const Schedule& schedule, const BlockShape& shape);

// Writes the nodes of graphs as operations. References are borrowed.
class GraphWriter {
 public:
  GraphWriter(Schedule& schedule, const BlockShape& shape, BlockWriter& writer, LaneId compute)
      : shape_(shape),
        layout_(layout_of(schedule, shape)),
        compute_(compute),
        w_(writer),
        values_(schedule, writer, shape, layout_) {}

  const Layout& layout() const { return layout_; }
  PlacedValues& values() { return values_; }
  // Nodes that follow are of layers that share a sequence in this way, an index into ContextShape::kinds.
  void set_context(std::size_t kind) { context_ = kind; }
  // Appends the nodes to the block that the writer has begun, and ends it.
  BlockId write(const LayerGraphs& graphs, const std::vector<Node>& nodes);

 private:
  const Group& group_of(Ranks ranks) const;

  const BlockShape& shape_;
  const Layout layout_;
  const LaneId compute_;
  BlockWriter& w_;
  PlacedValues values_;
  std::size_t context_ = 0;
};

// The input of the model and its head, which are derived for all layers. Inputs of the step are added here.
class ModelEnds {
 public:
  // `loss` is the f64 scalar into which losses accumulate.
  ModelEnds(Schedule& schedule, const BlockShape& shape, BlockWriter& writer, GraphWriter& graphs, const View& loss);

  // `x` is the residual stream at the first layer or after the last one.
  BlockId embedding_forward(const View& x) { return write("embedding.forward", embedding_, embedding_.forward, x); }
  BlockId embedding_backward(const View& x) { return write("embedding.backward", embedding_, embedding_.backward, x); }
  BlockId head_forward(const View& x) { return write("head.forward", head_, head_.forward, x); }
  BlockId head_backward(const View& x) { return write("head.backward", head_, head_.backward, x); }
  BlockId head_weights(const View& x) { return write("head.wgrad", head_, head_.weights, x); }

 private:
  BlockId write(const char* name, const LayerGraphs& graphs, const std::vector<Node>& nodes, const View& x);

  BlockWriter& w_;
  GraphWriter& graphs_;
  LayerGraphs embedding_, head_;
};

}  // namespace stretto
