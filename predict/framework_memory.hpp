#pragma once
#include <cstdint>
#include <vector>

#include "model/framework_memory.hpp"
#include "model/schedule/beside_plan.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::predict {

// What a framework takes for the tensors of a role where Stretto allocates the role's plan.
struct RoleMemory {
  // Differences to RolePlan::bytes by what makes them, below 0 where the framework takes less. With them the sum is
  // what is allocated at the peak of a step.
  std::vector<BesidePlan> parts;
  // What PyTorch's allocator holds above that (predict/caching_allocator.hpp), because it keeps what it was given.
  std::int64_t held_bytes = 0;
};

// The tensors of `rank` as the framework allocates and frees them over two steps in host issue order: those of the
// schedule with the types of the profile, as long as somebody reads them, and what its kernels keep besides.
// `limit_bytes`: what the allocator may hold. `plan` is that of the rank's role; `memory.is_known` must be true.
RoleMemory role_memory(const Schedule& schedule, const RolePlan& plan, std::int64_t rank, const FrameworkMemory& memory,
                       std::int64_t limit_bytes);

}  // namespace stretto::predict
