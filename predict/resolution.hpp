#pragma once
#include <optional>
#include <string>

#include "model/scenario.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// Predictions that differ by less, as a share of the step, cannot be ranked: about the least error of predictions
// (docs/validate.md).
constexpr double kResolved = 0.025;
// Returns whether a knob's predicted effect is large enough to be believed.
bool is_resolved(double saved_ms, double step_ms);

// Returns a line where the scenario has CUDA graphs of parts of a step (cuda_graph_modules) and their predicted effect
// is not resolved: they act on the host's time alone, and where that bounds no step two runs of `simulate` would say
// that graphs bring nothing. `step_ms` is the scenario's own step. Throws as QuickStep does.
std::optional<std::string> unresolved_graphs(const Scenario& scenario, const sim::Platform& platform,
                                             const sim::SimOptions& options, double step_ms);

}  // namespace stretto::predict
