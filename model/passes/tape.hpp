#pragma once
#include <map>
#include <utility>

#include "model/graph/layout.hpp"

namespace stretto::passes {

// The gradients of values while the backward pass is written, and what has been written of them.
class Tape {
 public:
  Tape(LayerGraphs& graphs, const Layout& layout) : graphs_(graphs), layout_(layout) {}

  LayerGraphs& graphs() { return graphs_; }
  const Layout& layout() const { return layout_; }

  // Returns the gradient of a value, as these columns of it.
  Slice gradient(const Slice& of);
  // The gradient of `of` is (a part of) this value.
  void set_gradient(ValueId of, ValueId gradient) { gradient_[of] = gradient; }
  bool has_gradient(ValueId of) const { return gradient_.contains(of); }
  // Returns the access that adds a term to the gradient of a value: a write for the first one.
  Operand into(const Slice& of);
  void note_written(const Slice& gradient) { written_.push_back(gradient); }
  // Returns the access that adds to the gradient of a parameter.
  Operand into_parameter(const Slice& of);

  // Appends a node of the backward pass that belongs to a node of the forward pass.
  Node& emit(const Node& of, const std::string& what, Phase phase, Work work, std::vector<Operand> operands);
  // Inserts a node after the last one that writes the value.
  void insert_after_writer(ValueId value, Node node);
  Node node(const Node& of, const std::string& what, Phase phase, Work work, std::vector<Operand> operands);

  // The gradient of what a late bias was added to: [bias].
  std::map<ValueId, Slice> of_late_bias;

 private:
  LayerGraphs& graphs_;
  const Layout& layout_;
  std::map<ValueId, ValueId> gradient_;
  std::vector<Slice> written_;
};

}  // namespace stretto::passes
