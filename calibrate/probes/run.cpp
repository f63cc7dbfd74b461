#include "calibrate/probes/run.hpp"

#include <algorithm>
#include <cassert>

#include "base/steal.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/verify.hpp"

namespace stretto::calibrate {

ProbeRun run_probe(const Schedule& schedule, const host::HostOptions& options, int warmup, int repeats,
                   const std::function<void(host::HostExecutor&)>& prepare) {
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  host::HostExecutor executor(schedule, plan, options);
  if (prepare) prepare(executor);
  if (warmup > 0) executor.run(warmup);
  ProbeRun run;
  run.programs = executor.programs();
  Undisturbed undisturbed(3);
  undisturbed([&] {
    run.timelines.clear();
    for (int i = 0; i < repeats; ++i) run.timelines.push_back(executor.run(1));
  });
  return run;
}

double median_of(std::vector<double> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double spread_pct_of(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  const double p10 = values[values.size() / 10], p90 = values[values.size() - 1 - values.size() / 10],
               middle = values[values.size() / 2];
  return middle > 0 ? 100 * (p90 - p10) / middle : 0;
}

}  // namespace stretto::calibrate
