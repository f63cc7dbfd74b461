#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/timeline.hpp"
#include "exec/executor.hpp"
#include "exec/host/memory.hpp"
#include "exec/run_options.hpp"
#include "model/schedule/bind.hpp"
#include "model/verify/verify.hpp"

namespace stretto::host {

struct HostOptions : exec::RunOptions {
  int cores_per_device = 0;  // cores that the ranks of one device share; 0 = all cores of this machine
  // Returns whether the user wants to stop: run() then waits for a computation at most 10 s. Called from the thread
  // that calls run().
  std::function<bool()> stop = {};
  // Called on the lane's thread before each operation, with rank and index into BoundProgram::ops. For tests (injected
  // faults) and progress; may throw, which fails the step on all ranks.
  std::function<void(std::int64_t rank, std::uint32_t op)> before_operation = {};
};

// Runs a schedule on this machine: every lane of every rank is a thread, and communication goes through memory and
// takes as long as the scenario's link would. Or it runs only one rank, and other processes run the others
// (RunOptions::processes). A compute operation holds a core of its device while it runs, a communication on the `sm`
// engine as many as it has channels; cores are granted by the priority of lanes, then first come, first served.
//
// Owns all ranks' memory. Use from one thread; between calls of run() all lanes are idle and memory may be read and
// written freely.
class HostExecutor final : public exec::Executor {
 public:
  // Keeps a reference to `verified`, which must outlive the executor. Throws Error(runtime) when memory cannot be
  // allocated, Error(input) when channels could take all cores (check_residency).
  HostExecutor(const VerifiedSchedule& verified, HostOptions options);
  ~HostExecutor() override;
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  // Runs steps. When an operation throws, a rank dies or nothing moves for timeout_s, every rank stops and this throws
  // Error(runtime) naming the rank and the operation. It also throws when a computation does not end in 1.5 timeout_s;
  // the lane that hangs in it, and the executor's memory, then stay until the process ends, which should be soon.
  Timeline run(int steps) override;

  bool is_here(std::int64_t rank) const override;
  const std::vector<BoundProgram>& programs() const override;
  RankMemory& memory(std::int64_t rank) override;  // the memory itself, not a copy
  const Schedule& schedule() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stretto::host
