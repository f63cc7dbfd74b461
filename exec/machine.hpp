#pragma once
#include <functional>
#include <memory>

#include "exec/executor.hpp"
#include "exec/run_options.hpp"
#include "model/verify/verify.hpp"

namespace stretto::exec {

// A factory of executors for one machine, used to train, measure and calibrate. A value; copies denote one machine.
struct Machine {
  // Makes an executor, which the schedule must outlive. Sets RunOptions::processes. Throws as the executors do.
  std::function<std::unique_ptr<Executor>(const VerifiedSchedule& verified, RunOptions options)> make;
  // Steps that a probe runs back to back for one timeline, that of the last step. There is more than one on a GPU, so
  // that the host has issued the timed step before the device reaches it.
  int steps = 1;
  // Set when each rank is a process. All processes run equally many measurements: none is repeated when one process was
  // disturbed.
  launch::ProcessGroup* processes = nullptr;
};

// Returns this machine's processor. Its make() throws Error(input) where the ranks' plans need more memory than the
// machine has free, before anything is allocated; with `processes` all call it together. Ranks share `cores` of its
// cores; 0: all. `stop` is HostOptions::stop.
Machine host_machine(int cores, std::function<bool()> stop = {}, launch::ProcessGroup* processes = nullptr);
// Returns one GPU shared by all ranks; with `processes`, one GPU for each process's rank.
Machine gpu_machine(launch::ProcessGroup* processes = nullptr);

}  // namespace stretto::exec
