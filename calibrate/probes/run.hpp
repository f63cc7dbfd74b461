#pragma once
#include <functional>
#include <vector>

#include "base/timeline.hpp"
#include "exec/machine.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::calibrate {

using exec::gpu_machine, exec::host_machine, exec::Machine, exec::RunOptions;

// Verifies and plans the schedule, runs it `warmup` times and then `repeats` times, and returns the timelines of the
// latter. `prepare` may write inputs after memory has been allocated, and upload them.
struct ProbeRun {
  std::vector<BoundProgram> programs;
  std::vector<Timeline> timelines;
};
ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const RunOptions& options, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare = {});

}  // namespace stretto::calibrate
