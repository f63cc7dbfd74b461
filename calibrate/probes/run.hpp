#pragma once
#include <functional>
#include <vector>

#include "base/timeline.hpp"
#include "exec/host/executor.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::calibrate {

// Verifies and plans the schedule, runs it `warmup` times and then `repeats` times, and returns the timelines of the
// latter. `prepare` may write inputs after memory has been allocated.
struct ProbeRun {
  std::vector<BoundProgram> programs;
  std::vector<Timeline> timelines;
};
ProbeRun run_probe(const Schedule& schedule, const host::HostOptions& options, int warmup, int repeats,
                   const std::function<void(host::HostExecutor&)>& prepare = {});

double median_of(std::vector<double> values);
double spread_pct_of(std::vector<double> values);  // (p90 − p10) / median

}  // namespace stretto::calibrate
