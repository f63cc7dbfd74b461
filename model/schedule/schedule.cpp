#include "model/schedule/schedule.hpp"

#include <algorithm>
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

// Axes enter expressions as the offset of equal shards, which moves where a rank works in its buffers and nothing else:
// layer and slot must not depend on them, offsets may.
std::vector<std::int64_t> representative_ranks(const Schedule& schedule) {
  const std::int64_t ranks = schedule.mesh.ranks();
  bool foldable = true;
  for (const Operation& operation : schedule.operations)
    for (const Access& access : operation.accesses)
      for (const MeshAxis& axis : schedule.mesh.axes())
        foldable = foldable && access.view.layer.is_symmetric_in(axis.coord, axis.size) &&
                   access.view.slot.is_symmetric_in(axis.coord, axis.size);
  // A last device that is only part full competes less for its cores: not symmetric.
  const std::int64_t per_device = std::min(ranks, schedule.placement.ranks_per_device);
  foldable = foldable && ranks % per_device == 0;
  std::vector<std::int64_t> result(foldable ? per_device : ranks);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace stretto
