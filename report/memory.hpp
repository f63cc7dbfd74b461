#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The contents of a rank's arena, in bytes. The sum is its peak, which the simulator predicts and the executor
// allocates.
struct MemoryUse {
  std::string role;             // whose ranks: "rank"
  std::int64_t parameters = 0;  // live across steps, share with nobody; as optimizer_state
  std::int64_t optimizer_state = 0;
  std::int64_t inputs_and_scalars = 0;
  std::int64_t reused = 0;  // gradients, activations, workspaces: the plan lets them share bytes; and the alignment

  std::int64_t peak() const { return parameters + optimizer_state + inputs_and_scalars + reused; }
};

// One entry a role. `plan` must be the schedule's.
std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan);

}  // namespace stretto
