#include "model/lower/builder.hpp"

namespace stretto {

StorageId add_storage(Schedule& schedule, const std::string& name, Dtype dtype, BufferKind kind,
                      std::int64_t elements) {
  schedule.storages.push_back({name, dtype, kind, elements});
  return static_cast<StorageId>(schedule.storages.size() - 1);
}

TensorId add_placed_tensor(Schedule& schedule, const std::string& name, std::int64_t rows, std::int64_t cols,
                           std::vector<TensorPlace> places) {
  Tensor tensor;
  tensor.name = name;
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.layers = static_cast<std::int64_t>(places.size());
  tensor.places = std::move(places);
  schedule.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(schedule.tensors.size() - 1);
}

TensorId add_tensor(Schedule& schedule, const std::string& name, Dtype dtype, BufferKind kind, std::int64_t rows,
                    std::int64_t cols, std::int64_t layers, std::int64_t slots) {
  std::vector<TensorPlace> places;
  places.reserve(static_cast<std::size_t>(layers * slots));
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      std::string instance = name;
      if (layers > 1) instance += ".l" + std::to_string(layer);
      if (slots > 1) instance += ".s" + std::to_string(slot);
      places.push_back({add_storage(schedule, instance, dtype, kind, rows * cols), 0});
    }
  const TensorId id = add_placed_tensor(schedule, name, rows, cols, std::move(places));
  schedule.tensors[id].layers = layers;
  schedule.tensors[id].slots = slots;
  return id;
}

TensorId with_role(Schedule& schedule, TensorRole role, TensorId tensor) {
  schedule.tensors[tensor].role = role;
  return tensor;
}

View whole(const Schedule& schedule, TensorId tensor, const Expr& layer, const Expr& slot) {
  const Tensor& t = schedule.tensors[tensor];
  return {tensor, layer, slot, 0, t.rows, t.cols, t.cols};
}

Access read(View view) { return {AccessMode::read, std::move(view)}; }
Access write(View view) { return {AccessMode::write, std::move(view)}; }
Access accumulate(View view) { return {AccessMode::accumulate, std::move(view)}; }

OpId add_operation(Schedule& schedule, Block& block, Operation operation) {
  schedule.operations.push_back(std::move(operation));
  const auto id = static_cast<OpId>(schedule.operations.size() - 1);
  block.ops.push_back(id);
  return id;
}

BlockId add_block(Schedule& schedule, Block block) {
  schedule.blocks.push_back(std::move(block));
  return static_cast<BlockId>(schedule.blocks.size() - 1);
}

BlockId add_single(Schedule& schedule, Operation operation) {
  Block block{operation.name, {}};
  add_operation(schedule, block, std::move(operation));
  return add_block(schedule, std::move(block));
}

Call call_block(const Schedule& schedule, BlockId block, std::int64_t layer, std::int64_t micro_batch) {
  return {block, layer, micro_batch, 0, 0, static_cast<std::uint32_t>(schedule.blocks[block].ops.size()), {}};
}

}  // namespace stretto
