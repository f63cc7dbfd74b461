#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "base/timeline.hpp"
#include "exec/executor.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::launch {
class ProcessGroup;
}

namespace stretto::calibrate {

// How a probe's links are paced; GBps 0: as fast as memory is.
struct ProbeLinks {
  double GBps = 0, latency_us = 0;
};

// What probes run on.
struct Machine {
  std::function<std::unique_ptr<exec::Executor>(const Schedule& schedule, const MemoryPlan& plan,
                                                const ProbeLinks& links)>
      make;
  // Run back to back for each timeline, which is the last one's. A GPU gets more than one, so that the host has issued
  // the step that is timed before the device comes to it.
  int steps = 1;
  bool repeats_disturbed = true;
};
Machine host_machine(int cores);  // that ranks share; 0: all
Machine gpu_machine();            // that all ranks share
// A GPU for the rank of each process, which all run the same probes: none is repeated because one was disturbed.
Machine nccl_machine(launch::ProcessGroup& processes);

// Verifies and plans the schedule, runs it `warmup` times and then `repeats` times, and returns the timelines of the
// latter. `prepare` may write inputs after memory has been allocated, and upload them.
struct ProbeRun {
  std::vector<BoundProgram> programs;
  std::vector<Timeline> timelines;
};
ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const ProbeLinks& links, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare = {});

}  // namespace stretto::calibrate
