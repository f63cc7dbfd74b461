#include "compare/predict.hpp"

#include <utility>

#include "base/statistics.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::compare {

double speed_against(const std::vector<double>& readings_GFLOPs, double calibrated_GFLOPs) {
  if (calibrated_GFLOPs >= percentile(readings_GFLOPs, 25) && calibrated_GFLOPs <= percentile(readings_GFLOPs, 75))
    return 1;
  return median(readings_GFLOPs) / calibrated_GFLOPs;
}

Conditions conditions_of(const CoreMonitor& cores, double calibrated_GFLOPs) {
  Conditions conditions{speed_against(cores.sgemm_GFLOPs(), calibrated_GFLOPs), cores.detours().disturbance()};
  // Up to the limit others come now and then, whatever ranks do; above it somebody computes all the time.
  conditions.disturbance.shares_by_time = 100 * conditions.disturbance.share > Comparison::kBusy_pct;
  return conditions;
}

sim::SimResult predict(const exec::ReadyStep& step, const sim::Platform& platform, const Conditions& conditions,
                       const sim::SimOptions& options) {
  sim::Costs costs = sim::cost_schedule(step.schedule, platform, step.scenario.cluster, conditions.core_speed);
  costs.disturbance = conditions.disturbance;
  return sim::simulate(step.schedule, step.verified.programs, costs, options);
}

std::vector<PredictedMode> predict_modes(const Scenario& scenario, const sim::Platform& platform,
                                         const sim::SimOptions& options) {
  std::vector<PredictedMode> modes;
  for (const std::string& name : modes_of(scenario)) {
    const Schedule schedule = build_schedule(with_mode(scenario, name, scenario.parallel.ranks()));
    const sim::SimResult result =
        sim::simulate(schedule, plan_and_verify(schedule).programs,
                      sim::cost_schedule(schedule, platform, scenario.cluster, 1, scenario.framework), options);
    const Breakdown b = mean_breakdown(schedule, result.programs, result.timeline);
    modes.push_back({name, to_ms(result.step), to_ms(b.exposed_total), to_ms(b)});
  }
  return modes;
}

}  // namespace stretto::compare
