#pragma once
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::compare {

// A step as a verified schedule, which is costed again for other constants without being built again.
class BuiltStep {
 public:
  // Throws Error(input) when the scenario cannot be built or its schedule is not correct.
  explicit BuiltStep(const Scenario& scenario)
      : cluster_(scenario.cluster),
        training_(scenario.training),
        schedule_(build_schedule(scenario)),
        verified_(plan_and_verify(schedule_)) {}

  const Schedule& schedule() const { return schedule_; }
  const Training& training() const { return training_; }
  const MemoryPlan& plan() const { return verified_.plan; }
  sim::Costs costs(const sim::Platform& platform, const Framework& framework) const {
    return sim::cost_schedule(schedule_, platform, cluster_, 1, framework);
  }
  sim::SimResult simulate(const sim::Costs& costs, const sim::SimOptions& options = {}) const {
    return sim::simulate(schedule_, verified_.programs, costs, options);
  }
  double step_s(const sim::Costs& costs) const { return to_ms(simulate(costs).step) * 1e-3; }

 private:
  Cluster cluster_;
  Training training_;
  Schedule schedule_;
  VerifiedSchedule verified_;
};

}  // namespace stretto::compare
