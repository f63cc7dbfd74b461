#include "model/schedule/schedule.hpp"

#include <algorithm>

#include "base/values_of.hpp"

namespace stretto {

const char* name_of(TokenTransport transport) { return name_in({"nccl", "deepep", "hybridep", "ncclep"}, transport); }

const char* name_of(BufferKind kind) {
  return name_in({"parameter", "gradient", "optimizer_state", "activation", "workspace", "input", "scalar"}, kind);
}

const char* name_of(Phase phase) {
  return name_in({"setup", "forward", "dgrad", "wgrad", "grad_sync", "optimizer", "param_sync"}, phase);
}

const char* name_of(Module module) {
  return name_in({"none", "embedding", "attention_norm", "attention", "mlp_norm", "mlp", "router", "token_sort",
                  "experts", "shared_experts", "final_norm", "head"},
                 module);
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

Expr place_in(const Schedule& schedule, const Communicator& communicator) {
  Expr place = 0;
  for (const MeshAxis& axis : schedule.mesh.decomposition_with(communicator.axes))
    if (std::find(communicator.axes.begin(), communicator.axes.end(), axis.coord) != communicator.axes.end())
      place = place * Expr(axis.size) + Expr(axis.coord);
  if (communicator.subset.empty()) return place;
  // Counts the members of the subset below this place.
  Expr below = select_le(place, communicator.subset[0], 0, 1);
  for (std::size_t i = 1; i + 1 < communicator.subset.size(); ++i)
    below = below + select_le(place, communicator.subset[i], 0, 1);
  return below;
}

}  // namespace stretto
