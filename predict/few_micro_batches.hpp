#pragma once
#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/scenario.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"
#include "report/exposure.hpp"
#include "sim/cost/cost.hpp"
#include "sim/engine.hpp"
#include "sim/options.hpp"

namespace stretto::predict {

// A pipeline repeats itself once it is full, so the time of a step with many micro-batches follows from one with few.

// Returns the step with another number of micro-batches, all else equal. A step with fewer keeps operands for as many
// weight gradients of the head as the scenario's puts off, and its slowest replica the documents of the scenario's.
Scenario with_micro_batches(Scenario scenario, std::int64_t count);
// Returns the micro-batches after which a pipeline may repeat itself: those of one group with virtual stages, else one.
std::int64_t round_of(const Scenario& scenario);
// Returns numbers of micro-batches, ascending, from whose steps the scenario's time may follow; the last is the
// scenario's own. All leave the remainder of a round that the scenario's number leaves. Each of these steps fills the
// pipeline and uses every buffer again, so the first one's plan has the buffers of all, which may be placed otherwise:
// peaks differ by less than 1 %. Ranks of a straggler settle later than others, so where there is one a number that
// leaves too little time for that is left out.
std::vector<std::int64_t> micro_batches_to_simulate(const Scenario& scenario, bool has_straggler = false);
// Returns why only the whole step gives the time, where micro_batches_to_simulate() has no other; else "".
std::string why_only_whole(const Scenario& scenario);

// A simulated step that the scenario's follows from, and the rounds that it left out.
struct ExtrapolatedStep {
  const Schedule* schedule = nullptr;  // of the simulated step, borrowed
  std::int64_t micro_batches = 0;      // of the simulated step
  sim::SimResult result;               // the simulated step; its BoundStep may be empty
  Repeated rounds;                     // left out
  const BoundStep* bound = nullptr;    // borrowed; nullptr: that of `result`
  const std::vector<BoundProgram>& programs() const { return bound != nullptr ? bound->programs : result.programs; }
  Picoseconds step() const { return result.step + rounds.longer(); }
  // Returns the breakdown of the scenario's step, which must not be extrapolated by a round of some ranks alone.
  Breakdown mean() const {
    assert(rounds.times == 0 || result.round->is_of_all);
    return mean_breakdown(*schedule, programs(), result.timeline, rounds);
  }
  // Returns active_communication() of the scenario's step, with the same condition.
  Picoseconds active() const {
    assert(rounds.times == 0 || result.round->is_of_all);
    return active_communication(*schedule, programs(), result.timeline, rounds);
  }
};

// Returns the scenario's step extrapolated from `schedule`, the scenario's with `micro_batches`, and its bound step.
// Times are exact: the simulated step proves that it repeats itself (sim/rounds.hpp), or is the whole. nullopt where it
// does not, with the reason in `why_not`. Borrows the schedule.
std::optional<ExtrapolatedStep> extrapolated_step(const Scenario& scenario, const Schedule& schedule, BoundStep step,
                                                  std::int64_t micro_batches, const sim::Costs& costs,
                                                  sim::SimOptions options = {}, std::string* why_not = nullptr);

// Does the same by a simulation that is kept for other costs. Borrows the schedule and the bound step of the
// simulation.
std::optional<ExtrapolatedStep> extrapolated_step(const Scenario& scenario, const Schedule& schedule,
                                                  const BoundStep& step, const sim::RepeatedSimulation& simulation,
                                                  std::int64_t micro_batches, const sim::Costs& costs,
                                                  sim::SimOptions options = {}, std::string* why_not = nullptr);

}  // namespace stretto::predict
