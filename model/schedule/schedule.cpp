#include "model/schedule/schedule.hpp"

#include <algorithm>
#include <cassert>

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

Dtype product_type(const Schedule& schedule, const Operation& gemm) {
  const Dtype a = schedule.dtype_of(gemm.accesses[0].view), b = schedule.dtype_of(gemm.accesses[1].view);
  return bytes_of(a) < bytes_of(b) ? b : a;
}

std::vector<std::int64_t> members_of(const Schedule& schedule, const Communicator& communicator, std::int64_t rank) {
  if (communicator.subset.empty()) return schedule.mesh.members(rank, communicator.axes);
  const std::vector<std::int64_t> all = schedule.mesh.members(rank, communicator.axes);
  std::vector<std::int64_t> members;
  for (const std::int64_t coordinate : communicator.subset)
    members.push_back(all[static_cast<std::size_t>(coordinate)]);
  if (std::find(members.begin(), members.end(), rank) == members.end()) members.clear();
  return members;
}

Expr place_in(const Schedule& schedule, const Communicator& communicator) {
  Expr place = 0;
  for (const MeshAxis& axis : schedule.mesh.decomposition_with(communicator.axes))
    if (std::find(communicator.axes.begin(), communicator.axes.end(), axis.coord) != communicator.axes.end())
      place = place * Expr(axis.size) + Expr(axis.coord);
  if (communicator.subset.empty()) return place;
  // How many of the subset are below it.
  Expr below = select_le(place, communicator.subset[0], 0, 1);
  for (std::size_t i = 1; i + 1 < communicator.subset.size(); ++i)
    below = below + select_le(place, communicator.subset[i], 0, 1);
  return below;
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

}  // namespace stretto
