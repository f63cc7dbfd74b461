#pragma once
#include <cstdint>

#include "model/scenario.hpp"

namespace stretto {

// The size of a step's schedule, estimated from the scenario alone before anything is built. It is not the memory of
// training.
struct StepSize {
  double ranks = 0;       // ranks that are not folded into others: each has a program
  double operations = 0;  // operations of all these ranks
  double bytes = 0;       // memory to build, plan, verify and simulate the schedule; right within a factor of two
};
StepSize step_size_of(const Scenario& scenario);

// Throws Error(input) when the schedule would take more than `free_bytes`. The message says how much it would take, and
// which key to set to which value.
void require_size(const Scenario& scenario, std::int64_t free_bytes);

}  // namespace stretto
