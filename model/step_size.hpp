#pragma once
#include <cstdint>

#include "model/scenario.hpp"

namespace stretto {

// How large the schedule of a step will be, from the scenario alone: before anything is built. Not what training takes.
struct StepSize {
  double ranks = 0;       // that are not folded into others: a program each
  double operations = 0;  // of all of these
  double bytes = 0;       // that building, planning, verifying and simulating it takes; within a factor of two
};
StepSize step_size_of(const Scenario& scenario);

// Throws Error(input) when the schedule would take more than `free_bytes`: what it would take, and which key is to be
// set to what.
void require_size(const Scenario& scenario, std::int64_t free_bytes);

}  // namespace stretto
