#pragma once
#include <cstdint>
#include <functional>

#include "model/scenario.hpp"
#include "model/schedule/bound_step.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"
#include "sweep/point.hpp"

namespace stretto::sweep {

// Returns bytes below the memory that a rank of the fullest stage takes: its share of parameters, gradients and
// optimizer state, each with the least bytes that any profile gives them, and of the activations that a pipeline keeps
// those that no recomputation and no fused kernel avoids. Needs no schedule.
double least_bytes(const Scenario& scenario);

// Returns a time that no step of the scenario falls below: the computation of the busiest lane. `step` is the bound
// schedule of the scenario with `micro_batches`. Waits and interference only make a step longer.
double least_step_ms(const Scenario& scenario, const BoundStep& step, std::int64_t micro_batches,
                     const sim::Costs& costs);

// Completes a point whose settings read as `scenario`: memory, bound, step. The order is from cheap to dear, and the
// first reason ends it. `limit_ms()` is asked before the simulation: a bound above it is not simulated. A schedule
// is verified before it is simulated. Errors of kind input become Status::refused. Thread-safe.
void evaluate(Point& point, const Scenario& scenario, const sim::Platform& platform,
              const std::function<double()>& limit_ms);

}  // namespace stretto::sweep
