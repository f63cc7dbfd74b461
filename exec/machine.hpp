#pragma once
#include <functional>
#include <memory>

#include "exec/executor.hpp"
#include "exec/run_options.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// What schedules run on: whoever trains, measures or calibrates is given one. A value; copies are the same machine.
struct Machine {
  // Makes what runs a schedule, which must have been verified and outlives it. RunOptions::processes is set here.
  // Throws as the executors do.
  std::function<std::unique_ptr<Executor>(const Schedule& schedule, const MemoryPlan& plan, RunOptions options)> make;
  // Run back to back for each timeline of a probe, which is the last one's. A GPU gets more than one, so that the host
  // has issued the step that is timed before the device comes to it.
  int steps = 1;
  // Where each rank is a process. All of them run the same: none is repeated because one of them was disturbed.
  launch::ProcessGroup* processes = nullptr;
};

// This machine's processor, `cores` of which ranks share; 0: all. `stop` is HostOptions::stop.
Machine host_machine(int cores, std::function<bool()> stop = {}, launch::ProcessGroup* processes = nullptr);
// A GPU that all ranks share, or one for the rank of each process.
Machine gpu_machine(launch::ProcessGroup* processes = nullptr);

}  // namespace stretto::exec
