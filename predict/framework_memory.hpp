#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/framework_memory.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"
#include "report/memory.hpp"

namespace stretto::predict {

// Half the width of the interval of a GPU's predicted memory, as a share of it: twice the root mean square error of the
// published peaks that `stretto validate` predicts (2.2 % of 36, docs/validate.md), rounded up because most of them are
// of tensors alone, without context and libraries.
constexpr double kUnsureMemory = 0.05;

// Returns [storage] the role of the first tensor that lies in it.
std::vector<TensorRole> roles_of_storages(const Schedule& schedule);

// Simulates how the framework allocates and frees the tensors of a rank over two steps in host issue order: those of
// the schedule with the types of the profile, as long as an operation reads them, and the further tensors that its
// kernels keep. Returns what is allocated at the peak, by parts (none is below 0), and what the allocator holds
// above that; the role's name is empty. `program` is the rank's, and borrowed. `limit_bytes`: the most that the
// allocator may hold. `plan` belongs to the rank's role; `memory.is_known` must be true. The rank gets `most_rows`
// times the rows of experts that it gets when all experts have equally many. `weights_are_codes`: weights that are
// multiplied as codes have no copy in bf16: they are of a frozen base, or gathered into the buffer of gradients
// (reuse_grad_buf_for_mxfp8_param_ag). `role_of`: as roles_of_storages() returns it.
MemoryUse role_memory(const Schedule& schedule, const RolePlan& plan, const BoundProgram& program,
                      const FrameworkMemory& memory, std::int64_t limit_bytes, double most_rows, bool weights_are_codes,
                      std::span<const TensorRole> role_of);

}  // namespace stretto::predict
