#include "model/lower/placed_values.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace stretto {

View PlacedValues::view(const LayerGraphs& graphs, const Slice& slice, Phase phase, Phase gathers_for) {
  const Value& value = graphs.of(slice);
  View view = whole_of(graphs, slice.value, phase, gathers_for);
  const std::int64_t columns = layout_.ways(value.cols.dim), rows = layout_.ways(value.rows.dim);
  const std::int64_t before = slice.first / columns + slice.first_row / rows * view.ld;
  const bool is_whole = slice.cols == value.cols.size && slice.rows == 0;
  if (before > 0) view.offset = view.offset + Expr(before);
  if (!(slice.offset == Expr(0))) view.offset = slice.offset;
  if (value.is_shared) view.cols = view.ld = slice.cols;
  if (is_whole || value.is_shared) return view;
  view.cols = slice.cols / columns;
  if (slice.rows > 0) view.rows = slice.rows / rows;
  if (value.kind == ValueKind::parameter && value.rows.size == 1) view.ld = view.cols;
  return view;
}

View PlacedValues::whole_of(const LayerGraphs& graphs, ValueId id, Phase phase, Phase gathers_for) {
  const Value& value = graphs.values[id];
  if (value.kind == ValueKind::parameter) {
    const Expr layer = value.is_layered ? Expr(Coord::layer) : Expr(0);
    return value.is_gradient ? w_.gradient(value.name, layer) : w_.parameter(value.name, layer);
  }
  if (value.kind == ValueKind::given) return given_.at(value.given);
  if (value.is_gathered && !value.dtype) return w_.gathering_place(gathers_for, layout_.cols_of(value));
  const bool is_of_head = !in_layer_ && value.is_kept && !value.is_gradient;
  if (is_of_head) {
    const auto known = of_head_.find(value.name);
    if (known != of_head_.end()) return known->second;
    const std::int64_t rows = layout_.rows_of(value), cols = layout_.cols_of(value);
    View kept = value.kind == ValueKind::activation
                    ? w_.head_activation(value.name, rows, cols)
                    : w_.act(add_tensor(schedule_, value.name, dtype_of(value), BufferKind::activation, rows, cols, 1,
                                        shape_.head_slots()));
    schedule_.tensors[kept.tensor].role = value.role;
    return of_head_[value.name] = std::move(kept);
  }
  // Two passes that run concurrently share no workspace of gathered codes.
  const bool is_of_backward = value.is_gathered && layout_.concurrent_passes && phase != Phase::forward;
  const std::string name = (is_of_backward ? "d_" : "") + value.name;
  const auto known = tensors_.find(name);
  const TensorId tensor = known != tensors_.end() ? known->second : add(graphs, id, name);
  if (known == tensors_.end() && value.filled_rows + value.filled_elements > 0)
    for (const TensorId of_pass : {tensor, w_.in_backward(tensor)})
      for (const TensorPlace& place : schedule_.tensors[of_pass].places)
        schedule_.storages[place.storage].filled =
            value.filled_elements > 0 ? value.filled_elements : value.filled_rows * schedule_.tensors[tensor].cols;
  tensors_[name] = tensor;
  if (value.is_of_weights) return whole(schedule_, tensor, Coord::layer);
  if (value.slots > 1) return whole(schedule_, tensor, 0, value.slot);
  if (value.alternates && !value.is_kept) return whole(schedule_, tensor, 0, mod(Expr(Coord::layer), 2));
  return value.is_kept || value.is_family ? w_.act(tensor, Coord::layer) : w_.work(tensor);
}

TensorId PlacedValues::add(const LayerGraphs& graphs, ValueId id, const std::string& name) {
  const Value& value = graphs.values[id];
  if (value.is_of_weights) return add_of_weights(value);
  if ((value.is_kept || value.is_family) && value.is_gradient) return add_kept_gradient(graphs, id);
  if (value.is_kept || value.is_family) return add_kept(value);
  if (value.pool_place >= 0) return add_in_pool(value);
  const TensorId tensor = add_tensor(schedule_, name, dtype_of(value), BufferKind::workspace, layout_.rows_of(value),
                                     layout_.cols_of(value), 1, value.alternates ? 2 : value.slots);
  schedule_.tensors[tensor].role = value.role;
  return tensor;
}

// A storage for each layer that has the value; no operation reads the place of another layer.
TensorId PlacedValues::add_of_weights(const Value& value) {
  const std::int64_t rows = layout_.rows_of(value), cols = layout_.cols_of(value), layers = shape_.model.num_layers;
  std::vector<TensorPlace> places(static_cast<std::size_t>(layers));
  std::vector<std::int64_t> without;
  std::optional<TensorPlace> any;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const LayerGraphs& of_layer = (*layers_)[shape_.kind_of_layer[static_cast<std::size_t>(layer)]];
    const bool has = std::any_of(of_layer.values.begin(), of_layer.values.end(),
                                 [&](const Value& v) { return v.name == value.name; });
    if (!has) {
      without.push_back(layer);
      continue;
    }
    const std::string name = value.name + ".l" + std::to_string(layer);
    places[static_cast<std::size_t>(layer)] = {
        add_storage(schedule_, name, dtype_of(value), BufferKind::parameter, rows * cols), 0};
    any = places[static_cast<std::size_t>(layer)];
  }
  for (const std::int64_t layer : without) places[static_cast<std::size_t>(layer)] = *any;
  return w_.family(value.name, rows, cols, layers, 1, std::move(places));
}

TensorId PlacedValues::add_in_pool(const Value& value) {
  const std::int64_t elements = layout_.rows_of(value) * layout_.cols_of(value);
  std::vector<TensorPlace> places;
  for (std::int64_t slot = 0; slot < value.slots; ++slot) {
    const auto place = static_cast<std::int64_t>(value.pool_place) + slot;
    auto known = pool_.find({value.is_gradient, place});
    if (known == pool_.end())
      known = pool_
                  .emplace(std::pair{value.is_gradient, place},
                           add_storage(schedule_, value.name + (value.slots > 1 ? ".s" + std::to_string(slot) : ""),
                                       dtype_of(value), BufferKind::workspace, 0))
                  .first;
    std::int64_t& of_storage = schedule_.storages[known->second].elements;
    of_storage = std::max(of_storage, elements);
    places.push_back({known->second, 0});
  }
  return w_.family(value.name, layout_.rows_of(value), layout_.cols_of(value), 1, value.slots, std::move(places));
}

TensorId PlacedValues::add_kept(const Value& value) {
  const auto kinds = layers_->size();
  std::vector<bool> has(kinds, false), is_again(kinds, false), passing(kinds, false);
  for (std::size_t k = 0; k < kinds; ++k)
    for (const Value& of_kind : (*layers_)[k].values)
      if (of_kind.name == value.name && (of_kind.is_kept || of_kind.is_family))
        has[k] = true, is_again[k] = of_kind.is_again, passing[k] = !of_kind.is_kept;
  const auto of_layers = [&](const std::vector<bool>& of_kinds) {
    std::vector<bool> of;
    for (std::int64_t layer = 0; layer < shape_.model.num_layers; ++layer)
      of.push_back(of_kinds[shape_.kind_of_layer[static_cast<std::size_t>(layer)]]);
    return of;
  };
  BlockWriter::Role role{.is_statistics = value.kind == ValueKind::statistics,
                         .is_mask = value.kind == ValueKind::integers,
                         .dtype = value.dtype,
                         .again = of_layers(is_again),
                         .role = value.role};
  if (std::count(passing.begin(), passing.end(), true) > 0) role.passing = of_layers(passing);
  if (std::count(has.begin(), has.end(), false) > 0) role.layers = of_layers(has);
  return w_.recomputable(value.name, layout_.rows_of(value), layout_.cols_of(value), shape_.model.num_layers,
                         std::move(role));
}

// The gradient lies in the storage of an activation of its shape: its own activation, or of a point of
// the residual stream, where the activation is not kept. An activation that weight gradients read does not lend its
// storage, because they run later.
TensorId PlacedValues::add_kept_gradient(const LayerGraphs& graphs, ValueId id) {
  const Value& value = graphs.values[id];
  const Value* const of = value.gradient_of ? &graphs.values[*value.gradient_of] : nullptr;
  if (of != nullptr && (of->is_kept || of->is_family)) {
    const auto is_reader = [&](const Node& node) { return node.reads_value(*value.gradient_of); };
    if (std::any_of(graphs.weights.begin(), graphs.weights.end(), is_reader)) return add_kept(value);
    const View lender = whole_of(graphs, *value.gradient_of, Phase::forward, Phase::forward);
    std::vector<bool> with;
    for (std::int64_t layer = 0; layer < shape_.model.num_layers; ++layer) {
      const LayerGraphs& of_layer = (*layers_)[shape_.kind_of_layer[static_cast<std::size_t>(layer)]];
      with.push_back(std::any_of(of_layer.values.begin(), of_layer.values.end(),
                                 [&](const Value& v) { return v.name == value.name; }));
    }
    return w_.kept_gradient(value.name, lender.tensor, with);
  }
  const bool is_of_stream =
      value.rows.dim == Dim::tokens && value.cols.dim == Dim::none && value.cols.size == shape_.model.hidden_size;
  if (!is_of_stream) return add_kept(value);
  const auto writer = std::find_if(graphs.backward.begin(), graphs.backward.end(),
                                   [&](const Node& node) { return node.writes_value(id); });
  const Given point = writer->section == 0 ? Given::between : Given::input;
  // Without norms of inputs weight gradients read the stream.
  const auto reads_point = [&](const Node& node) {
    return std::any_of(node.operands.begin(), node.operands.end(),
                       [&](const Operand& o) { return o.reads() && graphs.of(o.slice).given == point; });
  };
  if (std::any_of(graphs.weights.begin(), graphs.weights.end(), reads_point)) return add_kept(value);
  return w_.kept_gradient(value.name, given_.at(point).tensor);
}

Dtype PlacedValues::dtype_of(const Value& value) const {
  if (value.dtype) return *value.dtype;
  switch (value.kind) {
    case ValueKind::statistics:
      return w_.statistics_type();
    case ValueKind::integers:
      return Dtype::i32;
    case ValueKind::activation:
    case ValueKind::parameter:
    case ValueKind::given:
      return schedule_.compute_dtype;
  }
  return schedule_.compute_dtype;
}

}  // namespace stretto
