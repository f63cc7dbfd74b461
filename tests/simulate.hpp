#pragma once
#include "sim/engine.hpp"

namespace stretto::sim {

// Simulates a schedule that nobody has verified: one made by hand, or one that others verify.
inline SimResult simulate(const Schedule& schedule, const Costs& costs, const SimOptions& options = {}) {
  return simulate(schedule, bind_step(schedule), costs, options);
}

}  // namespace stretto::sim
