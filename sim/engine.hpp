#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/flat_program.hpp"
#include "sim/options.hpp"
#include "sim/rounds.hpp"

namespace stretto::sim {

// A step and its timeline. The step is the simulated one, in which stragglers have classes of their own.
struct SimResult : BoundStep {
  Timeline timeline;  // the last simulated step; rows of representatives only
  // With a disturbance, on the fluid network: all steps; `timeline` is the one of the median period.
  std::vector<Timeline> disturbed;
  Picoseconds step = 0;  // steady period
  // A step with SimOptions::round_micro_batches more has this round once more, where the step proves it
  // (sim/rounds.hpp).
  std::optional<Round> round;
  std::string no_round;         // why it does not, where it was asked
  bool steady = false;          // the next step would repeat the last (within 1e-6 relative), or the result is a median
  std::int64_t operations = 0;  // simulated operations of all steps and representatives
  double simulate_s = 0;        // wall time of the simulation
};

// Simulates the schedule on the model of a machine. Deterministic: equal inputs give equal results. `step` is the
// schedule's, as the verifier returns it (VerifiedSchedule): no other code binds one for a simulation. Ranks with costs
// of their own (Costs::of_rank) are simulated separately, with as few of their peers as do not behave like all others.
// If the schedule deadlocks nevertheless, throws Error(runtime) naming the waiting lanes and what they wait for.
// simgrid: there is one SimGrid engine in a process, so call it from one thread only.
SimResult simulate(const Schedule& schedule, BoundStep step, const Costs& costs, const SimOptions& options = {});

// Simulates one step with several costs, and does the work that does not depend on them once. Borrows the schedule and
// the step. Thread-safe on the fluid network.
class RepeatedSimulation {
 public:
  RepeatedSimulation(const Schedule& schedule, const BoundStep& step) : schedule_(schedule), step_(step) {}

  // Returns what simulate() returns, but the BoundStep of the result is empty where it would be a copy of the borrowed
  // one: without stragglers.
  SimResult simulate(const Costs& costs, const SimOptions& options = {}) const;

 private:
  std::shared_ptr<const StepTwins> twins_for(const SimOptions& options) const;

  const Schedule& schedule_;
  const BoundStep& step_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const StepTwins> twins_;
  mutable std::vector<TimedPrograms> idle_;  // of former simulations; one of them is given other costs
};

}  // namespace stretto::sim
