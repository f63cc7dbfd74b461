#pragma once
#include "sim/engine.hpp"

namespace stretto::sim {

// Simulates a schedule without verifying it: one made by hand, or one that other code verifies.
inline SimResult simulate(const Schedule& schedule, const Costs& costs, const SimOptions& options = {}) {
  return simulate(schedule, bind_step(schedule), costs, options);
}

}  // namespace stretto::sim
