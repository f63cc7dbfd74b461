#pragma once
#include "base/memory.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::predict {

// A step as a verified schedule, which can be costed again for other constants without being built again. Owns copies
// of the scenario's cluster and training. Immutable after construction.
class BuiltStep {
 public:
  // Throws Error(input) when the scenario cannot be built or its schedule is not correct.
  explicit BuiltStep(const Scenario& scenario)
      : cluster_(scenario.cluster),
        training_(scenario.training),
        verified_(plan_and_verify(build_schedule(scenario, free_memory_bytes()))) {}

  const Schedule& schedule() const { return verified_.schedule; }
  const Training& training() const { return training_; }
  // The plan is valid as long as this object.
  const MemoryPlan& plan() const { return verified_.plan; }
  // Returns the cost of every operation on the platform. Throws Error(input) naming the cost key that the platform file
  // lacks.
  sim::Costs costs(const sim::Platform& platform, const Framework& framework) const {
    return sim::cost_schedule(verified_.schedule, platform, cluster_, 1, framework, training_);
  }
  // Simulates the schedule; `costs` must be costs of this schedule.
  sim::SimResult simulate(const sim::Costs& costs, const sim::SimOptions& options = {}) const {
    return sim::simulate(verified_.schedule, verified_, costs, options);
  }

 private:
  Cluster cluster_;
  Training training_;
  VerifiedSchedule verified_;
};

}  // namespace stretto::predict
