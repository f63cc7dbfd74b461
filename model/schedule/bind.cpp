#include "model/schedule/bind.hpp"

#include <cassert>
#include <unordered_map>

#include "base/error.hpp"

namespace stretto {
namespace {

// Coordinates of an instance packed into one number per template; layers, micro-batches and chunks stay far below 2^20.
std::uint64_t instance_key(std::int64_t layer, std::int64_t micro_batch, std::int64_t chunk) {
  return (static_cast<std::uint64_t>(layer) << 40) | (static_cast<std::uint64_t>(micro_batch) << 16) |
         static_cast<std::uint64_t>(chunk);
}

struct InstanceIndex {
  // Only operations that some edge names are indexed: a handful out of millions.
  std::vector<bool> wanted;                                          // [OpId]
  std::vector<std::unordered_map<std::uint64_t, std::uint32_t>> at;  // [OpId]: coordinates → index in ops
};

}  // namespace

BoundProgram bind(const Schedule& schedule, std::int64_t rank) {
  BoundProgram bound;
  bound.rank = rank;
  bound.coordinates = schedule.mesh.coordinates_of(rank);
  bound.lanes.resize(schedule.lanes.size());
  const Program& program = schedule.program_of(bound.coordinates);

  InstanceIndex index;
  index.wanted.resize(schedule.operations.size());
  index.at.resize(schedule.operations.size());
  std::size_t count = 0;
  for (const Call& call : program.order) {
    count += call.count;
    for (const Edge& edge : call.waits) {
      if (edge.on.op >= schedule.operations.size())
        throw input_error("schedule: an edge names operation " + std::to_string(edge.on.op) + ", which does not exist");
      index.wanted[edge.on.op] = true;
    }
  }
  bound.ops.reserve(count);

  for (const Call& call : program.order) {
    if (call.block >= schedule.blocks.size() ||
        std::size_t(call.first) + call.count > schedule.blocks[call.block].ops.size())
      throw input_error("schedule: a call names operations that its block does not have");
    const Block& block = schedule.blocks[call.block];
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i) {
      const OpId id = block.ops[i];
      if (id >= schedule.operations.size() || schedule.operations[id].lane >= schedule.lanes.size())
        throw input_error("schedule: block " + block.name + " names an operation or lane that does not exist");
      BoundOp op;
      op.op = id;
      op.layer = static_cast<std::int32_t>(call.layer);
      op.micro_batch = static_cast<std::int32_t>(call.micro_batch);
      op.chunk = static_cast<std::int16_t>(call.chunk);
      op.lane = schedule.operations[id].lane;
      auto& lane = bound.lanes[op.lane];
      op.position = static_cast<std::uint32_t>(lane.size());
      const auto self = static_cast<std::uint32_t>(bound.ops.size());
      lane.push_back(self);
      if (index.wanted[id] &&
          !index.at[id].emplace(instance_key(call.layer, call.micro_batch, call.chunk), self).second)
        throw input_error("schedule: two instances of " + label(schedule, op) + ", so an edge to it is ambiguous");
      bound.ops.push_back(op);
    }
  }

  std::size_t next = 0;
  for (const Call& call : program.order) {
    if (call.count == 0) {
      if (!call.waits.empty())
        throw input_error("schedule: an empty call of " + schedule.blocks[call.block].name + " has waits");
      continue;
    }
    BoundOp& op = bound.ops[next];
    op.wait_begin = static_cast<std::uint32_t>(bound.waits.size());
    for (const Edge& edge : call.waits) {
      const auto found = index.at[edge.on.op].find(instance_key(edge.on.layer, edge.on.micro_batch, edge.on.chunk));
      if (found == index.at[edge.on.op].end())
        throw input_error("schedule: " + label(schedule, op) + " waits for " + schedule.operations[edge.on.op].name +
                          " layer " + std::to_string(edge.on.layer) + " micro-batch " +
                          std::to_string(edge.on.micro_batch) + ", which the program does not contain");
      const BoundOp& on = bound.ops[found->second];
      bound.waits.push_back(
          {edge.kind, on.lane, static_cast<std::uint8_t>(edge.on.steps_ago), on.position, found->second});
    }
    op.wait_end = static_cast<std::uint32_t>(bound.waits.size());
    for (std::uint32_t i = 1; i < call.count; ++i)
      bound.ops[next + i].wait_begin = bound.ops[next + i].wait_end = op.wait_end;
    next += call.count;
  }
  assert(next == bound.ops.size());
  return bound;
}

BoundView resolve(const Schedule& schedule, const BoundProgram& program, const BoundOp& op, std::size_t access) {
  const View& view = schedule.operations[op.op].accesses[access].view;
  if (view.tensor >= schedule.tensors.size())
    throw input_error("schedule: " + label(schedule, op) + " accesses a tensor that does not exist");
  const Tensor& tensor = schedule.tensors[view.tensor];
  Coordinates at = program.coordinates;
  at[Coord::layer] = op.layer;
  at[Coord::micro_batch] = op.micro_batch;
  at[Coord::chunk] = op.chunk;
  const std::int64_t layer = view.layer.eval(at), slot = view.slot.eval(at), offset = view.offset.eval(at);
  if (layer < 0 || layer >= tensor.layers || slot < 0 || slot >= tensor.slots)
    throw input_error("schedule: " + label(schedule, op) + " accesses " + tensor.name + "[layer " +
                      std::to_string(layer) + ", slot " + std::to_string(slot) + "], of which there are " +
                      std::to_string(tensor.layers) + " x " + std::to_string(tensor.slots));
  const std::int64_t last = offset + (view.rows - 1) * view.ld + view.cols;
  if (offset < 0 || view.rows < 1 || view.cols < 1 || view.ld < view.cols || last > tensor.elements())
    throw input_error("schedule: " + label(schedule, op) + " accesses elements [" + std::to_string(offset) + ", " +
                      std::to_string(last) + ") of " + tensor.name + ", which has " +
                      std::to_string(tensor.elements()));
  const TensorPlace& place = tensor.places[layer * tensor.slots + slot];
  return {place.storage, place.offset + offset, view.rows, view.cols, view.ld};
}

std::string label(const Schedule& schedule, const BoundOp& op) {
  return "h." + std::to_string(op.layer) + " " + schedule.operations[op.op].name + " mb " +
         std::to_string(op.micro_batch);
}

}  // namespace stretto
