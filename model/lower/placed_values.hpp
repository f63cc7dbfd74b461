#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/graph/layout.hpp"
#include "model/lower/block_writer.hpp"

namespace stretto {

// Places the values of graphs in tensors. A value's name is its tensor's: kinds of layers share tensors of a name.
// Rules, the first that fits:
//   parameters and their gradients   in buckets, as ParameterTensors has them
//   arrays from outside              as set_given() says
//   codes of weights                 a storage for each layer
//   what collectives gather          the workspace of gathers, which nobody keeps
//   kept gradients (W units)         BlockWriter::kept_gradient
//   saved activations                BlockWriter::recomputable: by layer and slot, or of layers that recompute them
//   workspaces of a place            the storage of the place, whatever kind of layer has them (Value::pool_place)
//   all others                       a workspace
// References are borrowed.
class PlacedValues {
 public:
  PlacedValues(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, const Layout& layout)
      : schedule_(schedule), w_(writer), shape_(shape), layout_(layout) {}

  // The graphs of all kinds of layers ([kind]), before any view is asked for.
  void set_layers(const std::vector<LayerGraphs>& layers) { layers_ = &layers; }
  // Values belong to layers, or to the input or head of the model, whose activations have no layer.
  void set_in_layer(bool in_layer) { in_layer_ = in_layer; }
  void set_given(Given which, View view) { given_[which] = std::move(view); }

  // `phase` is that of the operation; `gathers_for` that of the pass it is in.
  View view(const LayerGraphs& graphs, const Slice& slice, Phase phase, Phase gathers_for);

 private:
  View whole_of(const LayerGraphs& graphs, ValueId id, Phase phase, Phase gathers_for);
  TensorId add_of_weights(const Value& value);
  TensorId add(const LayerGraphs& graphs, ValueId id, const std::string& name);
  TensorId add_in_pool(const Value& value);
  TensorId add_kept(const Value& value);
  TensorId add_kept_gradient(const LayerGraphs& graphs, ValueId id);
  Dtype dtype_of(const Value& value) const;

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const Layout& layout_;
  const std::vector<LayerGraphs>* layers_ = nullptr;
  bool in_layer_ = true;
  std::map<Given, View> given_;
  std::map<std::string, TensorId> tensors_;
  std::map<std::pair<bool, std::int64_t>, StorageId> pool_;  // [is of a gradient, place]
  std::map<std::string, View> of_head_;                      // activations of the head
};

}  // namespace stretto
