#include "report/memory.hpp"

namespace stretto {
namespace {

MemoryUse use_of(const Schedule& schedule, const RolePlan& plan) {
  MemoryUse use;
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    if (!plan.has(id)) continue;
    const Storage& storage = schedule.storages[id];
    if (storage.kind == BufferKind::parameter) use.parameters += storage.bytes();
    if (storage.kind == BufferKind::optimizer_state) use.optimizer_state += storage.bytes();
    if (storage.kind == BufferKind::input || storage.kind == BufferKind::scalar)
      use.inputs_and_scalars += storage.bytes();
  }
  use.reused = plan.bytes - use.parameters - use.optimizer_state - use.inputs_and_scalars;
  return use;
}

}  // namespace

std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan) {
  std::vector<MemoryUse> uses;
  for (std::size_t role = 0; role < plan.roles.size(); ++role) {
    uses.push_back(use_of(schedule, plan.roles[role]));
    uses.back().role = schedule.programs[role].role;
  }
  return uses;
}

}  // namespace stretto
