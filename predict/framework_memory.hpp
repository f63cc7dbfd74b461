#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/framework_memory.hpp"
#include "model/schedule/beside_plan.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::predict {

// A framework's memory for the tensors of a role, where Stretto allocates the role's plan.
struct RoleMemory {
  // Differences to RolePlan::bytes by cause, below 0 where the framework takes less. With them the sum is the allocated
  // memory at the peak of a step.
  std::vector<BesidePlan> parts;
  // Bytes that PyTorch's allocator holds above the allocated ones (predict/caching_allocator.hpp), because it keeps its
  // segments.
  std::int64_t held_bytes = 0;
  std::int64_t state_bytes = 0;  // of the allocated bytes: those that stay for the whole step
};

// Returns [storage] the name of the first tensor that lies in it, or nothing. Borrows the names.
std::vector<std::string_view> tensors_of_storages(const Schedule& schedule);

// Simulates how the framework allocates and frees the tensors of a rank over two steps in host issue order: those of
// the schedule with the types of the profile, as long as an operation reads them, and the further tensors that its
// kernels keep. `program` is the rank's, and borrowed. `limit_bytes`: the most that the allocator may hold. `plan`
// belongs to the rank's role; `memory.is_known` must be true. The rank gets `most_rows` times the rows of experts that
// it gets when all experts have equally many. `weights_are_codes`: weights that are multiplied as codes have no copy in
// bf16, because they are gathered into the buffer of gradients (reuse_grad_buf_for_mxfp8_param_ag). `tensor_of`: as
// tensors_of_storages() returns it.
RoleMemory role_memory(const Schedule& schedule, const RolePlan& plan, const BoundProgram& program,
                       const FrameworkMemory& memory, std::int64_t limit_bytes, double most_rows,
                       bool weights_are_codes, std::span<const std::string_view> tensor_of);

}  // namespace stretto::predict
