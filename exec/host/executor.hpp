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
  int cores_per_device = 0;  // cores that the ranks of one device share; 0 = all of this machine
  // Whether the user wants to stop: a computation is then waited for 10 s at most. From the thread that calls run().
  std::function<bool()> stop = {};
  // Called on the lane's thread before each operation, with rank and index into BoundProgram::ops. For tests (injected
  // faults) and progress; may throw, which fails the step on all ranks.
  std::function<void(std::int64_t rank, std::uint32_t op)> before_operation = {};
};

// Runs a schedule on this machine: every rank's every lane is a thread, communication goes through memory and takes as
// long as the scenario's link would; or one rank of it, and the others are other processes (RunOptions::processes).
// Compute operations hold a core of their device while they run, communication on the `sm` engine as many as it has
// channels; cores are given by the priority of lanes, then first come, first served.
//
// Owns all ranks' memory. Use from one thread; between calls of run() all lanes are idle and memory may be read and
// written freely.
class HostExecutor final : public exec::Executor {
 public:
  // Keeps a reference to `verified`, which must outlive the executor. Throws Error(runtime) when memory cannot be had,
  // Error(input) when channels could take all cores (check_residency).
  HostExecutor(const VerifiedSchedule& verified, HostOptions options);
  ~HostExecutor() override;
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  // When an operation throws, a rank dies or nothing moves for timeout_s, every rank stops and this throws
  // Error(runtime) naming the rank and the operation. So it does when a computation does not end in 1.5 timeout_s; the
  // lane that hangs in it, and its memory, then stay until the process ends, and should soon.
  Timeline run(int steps) override;

  bool is_here(std::int64_t rank) const override;
  const std::vector<BoundProgram>& programs() const override;
  RankMemory& memory(std::int64_t rank) override;  // itself, no copy
  const Schedule& schedule() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stretto::host
