#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/timeline.hpp"
#include "model/scenario.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/options.hpp"

namespace stretto::predict {

// A pipeline repeats itself once it is full, so a step with few micro-batches tells the time of one with many.

// Returns the step with another number of micro-batches, all else equal.
Scenario with_micro_batches(Scenario scenario, std::int64_t count);
// Returns the micro-batches after which a pipeline may repeat itself: those of one group with virtual stages, else one.
std::int64_t round_of(const Scenario& scenario);
// Returns numbers of micro-batches, ascending, whose steps may tell the time of the scenario's; the last is the
// scenario's own. All leave the remainder of a round that the scenario's number leaves.
std::vector<std::int64_t> telling_micro_batches(const Scenario& scenario);

// Returns the time of the scenario's step from `schedule`, the scenario's with `micro_batches`, and its bound step. The
// time is exact: the simulated step proves that it repeats itself (sim/rounds.hpp), or is the whole. nullopt where it
// does not. The caller has verified the schedule.
std::optional<Picoseconds> told_step(const Scenario& scenario, const Schedule& schedule, BoundStep step,
                                     std::int64_t micro_batches, const sim::Costs& costs, sim::SimOptions options = {});

}  // namespace stretto::predict
