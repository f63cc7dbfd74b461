#include "model/schedule/schedule.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace stretto {

const char* name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::parameter:
      return "parameter";
    case BufferKind::gradient:
      return "gradient";
    case BufferKind::optimizer_state:
      return "optimizer_state";
    case BufferKind::activation:
      return "activation";
    case BufferKind::workspace:
      return "workspace";
    case BufferKind::input:
      return "input";
    case BufferKind::scalar:
      return "scalar";
  }
  return "?";
}

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::setup:
      return "setup";
    case Phase::forward:
      return "forward";
    case Phase::dgrad:
      return "dgrad";
    case Phase::wgrad:
      return "wgrad";
    case Phase::grad_sync:
      return "grad_sync";
    case Phase::optimizer:
      return "optimizer";
    case Phase::param_sync:
      return "param_sync";
  }
  return "?";
}

std::optional<TensorId> Schedule::find_tensor(const std::string& wanted) const {
  for (TensorId id = 0; id < tensors.size(); ++id)
    if (tensors[id].name == wanted) return id;
  return std::nullopt;
}

std::optional<OpId> Schedule::find_operation(const std::string& wanted) const {
  for (OpId id = 0; id < operations.size(); ++id)
    if (operations[id].name == wanted) return id;
  return std::nullopt;
}

std::vector<std::int64_t> members_of(const Schedule& schedule, const Communicator& communicator, std::int64_t rank) {
  if (communicator.subset.empty()) return schedule.mesh.members(rank, communicator.axes);
  Coordinates at = schedule.mesh.coordinates_of(rank);
  std::vector<std::int64_t> members;
  for (const std::int64_t coordinate : communicator.subset) {
    at[communicator.axes.front()] = coordinate;
    members.push_back(schedule.mesh.rank_of(at));
  }
  if (std::find(members.begin(), members.end(), rank) == members.end()) members.clear();
  return members;
}

std::int64_t member_after(const Schedule& schedule, const Communicator& communicator, std::int64_t rank,
                          std::int64_t offset) {
  const std::vector<std::int64_t> members = members_of(schedule, communicator, rank);
  const auto at = std::find(members.begin(), members.end(), rank) - members.begin();
  const auto size = static_cast<std::int64_t>(members.size());
  assert(at < size);
  return members[static_cast<std::size_t>(((at + offset) % size + size) % size)];
}

Peer peer_of(const Schedule& schedule, const PointToPoint& message, std::int64_t rank) {
  const Communicator& communicator = schedule.communicators[message.communicator];
  const std::int64_t offset = message.offset.eval(schedule.mesh.coordinates_of(rank));
  const std::int64_t distance = (message.is_send ? offset : -offset) % communicator.size;
  return {member_after(schedule, communicator, rank, offset), distance < 0 ? distance + communicator.size : distance};
}

// Axes enter expressions as the offset of equal shards, which moves where a rank works in its buffers and nothing else:
// layer and slot must not depend on them, offsets may. pp is the slowest axis, so a stage is a range of ranks.
std::vector<std::int64_t> representative_ranks(const Schedule& schedule) {
  const std::int64_t ranks = schedule.mesh.ranks(), stages = schedule.mesh.size(Coord::pp);
  const std::int64_t of_stage = ranks / stages;
  bool foldable = stages == 1 || schedule.mesh.axes().front().coord == Coord::pp;
  for (const Operation& operation : schedule.operations)
    for (const Access& access : operation.accesses)
      for (const MeshAxis& axis : schedule.mesh.axes())
        foldable = foldable && (axis.coord == Coord::pp || (access.view.layer.is_symmetric_in(axis.coord, axis.size) &&
                                                            access.view.slot.is_symmetric_in(axis.coord, axis.size)));
  // A last device that is only part full competes less for its cores, and one that two stages share does not repeat.
  // Devices that cut tensor-parallel groups in different places repeat when both do; ranks that send to one or the
  // other neighbour by their coordinate repeat with their group.
  const std::int64_t per_device = std::min(ranks, schedule.placement.ranks_per_device),
                     tp = schedule.mesh.size(Coord::tp);
  bool differs = per_device % tp != 0 && tp % per_device != 0;
  for (const Operation& operation : schedule.operations)
    if (const auto* message = std::get_if<PointToPoint>(&operation.work))
      differs = differs || message->offset.depends_on(Coord::tp);
  const std::int64_t period = differs ? std::lcm(per_device, tp) : per_device;
  foldable = foldable && of_stage % period == 0;
  std::vector<std::int64_t> result;
  for (std::int64_t stage = 0; stage < stages; ++stage)
    for (std::int64_t i = 0; i < (foldable ? period : of_stage); ++i) result.push_back(stage * of_stage + i);
  return result;
}

std::int64_t representative_of(const Schedule& schedule, std::span<const std::int64_t> representatives,
                               std::int64_t rank) {
  const auto kept = static_cast<std::int64_t>(representatives.size());
  const std::int64_t of_stage = schedule.mesh.ranks() / schedule.mesh.size(Coord::pp);
  const std::int64_t kept_of_stage = kept / schedule.mesh.size(Coord::pp);
  return rank / of_stage * of_stage + rank % of_stage % kept_of_stage;
}

}  // namespace stretto
