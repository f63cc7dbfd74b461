#pragma once
#include <cstdint>
#include <functional>

#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/platform.hpp"
#include "sweep/point.hpp"

namespace stretto::sweep {

// Returns bytes below the memory that one rank takes: its share of parameters, gradients and optimizer state, each with
// the least bytes that any profile gives them, and no activations. Needs no schedule.
double least_state_bytes(const Scenario& scenario);

// Returns a time that no step of the scenario falls below, from its schedule with fewer micro-batches: the computation
// of the busiest lane, and what a pipeline adds while it fills and drains is left out. Interference and waits only make
// a step longer.
double least_step_ms(const Scenario& scenario, const Schedule& schedule, const sim::Costs& costs);

// Completes a point whose settings read as `scenario`: memory, bound, step. The order is from cheap to dear, and the
// first reason ends it. `limit_ms()` is asked before the simulation: a bound above it is not simulated. The schedule is
// not verified. Errors of kind input become Status::refused. Thread-safe.
void evaluate(Point& point, const Scenario& scenario, const sim::Platform& platform,
              const std::function<double()>& limit_ms);

}  // namespace stretto::sweep
