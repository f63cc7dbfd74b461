#include "compare/conditions.hpp"

#include "base/statistics.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::compare {

double speed_against(const std::vector<double>& readings_GFLOPs, double calibrated_GFLOPs) {
  if (calibrated_GFLOPs >= percentile(readings_GFLOPs, 25) && calibrated_GFLOPs <= percentile(readings_GFLOPs, 75))
    return 1;
  return median(readings_GFLOPs) / calibrated_GFLOPs;
}

Conditions conditions_of(const CoreMonitor& cores, double calibrated_GFLOPs) {
  Conditions conditions{speed_against(cores.sgemm_GFLOPs(), calibrated_GFLOPs), cores.disturbance()};
  // Below the limit other processes take cores at random times; above it one of them always computes.
  conditions.disturbance.shares_by_time = 100 * conditions.disturbance.share > Comparison::kBusy_pct;
  return conditions;
}

sim::SimResult predict(const exec::ReadyStep& step, const sim::Platform& platform, const Conditions& conditions,
                       const sim::SimOptions& options) {
  sim::Costs costs = sim::cost_schedule(step.schedule, platform, step.scenario.cluster, conditions.core_speed);
  costs.disturbance = conditions.disturbance;
  return sim::simulate(step.schedule, step.verified, costs, options);
}

}  // namespace stretto::compare
