#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "exec/data.hpp"
#include "exec/executor.hpp"
#include "exec/launch/process_group.hpp"
#include "model/scenario.hpp"
#include "model/schedule/plan.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {

// A step that is measured and not trained with.

// Makes what runs a schedule of the scenario; the schedule outlives it.
using MakeExecutor = std::function<std::unique_ptr<exec::Executor>(const Scenario& scenario, const Schedule& schedule,
                                                                   const MemoryPlan& plan)>;
MakeExecutor on_host(int cores);
// Which all ranks share, or that of each process.
MakeExecutor on_gpu(launch::ProcessGroup* processes = nullptr);

// The schedule of a scenario, with weights and a batch in memory. Not movable: the executor refers to the schedule.
struct ReadyStep {
  Scenario scenario;
  Schedule schedule;
  MemoryPlan plan;
  std::unique_ptr<exec::Executor> executor;
  std::vector<BoundProgram> programs;  // of all ranks, wherever they are

  ReadyStep(const Scenario& scenario, const MakeExecutor& make, const exec::TokenSource& tokens);
  ReadyStep(const ReadyStep&) = delete;
  ReadyStep& operator=(const ReadyStep&) = delete;
};

// The scenario's data; without any, random bytes, on which a step takes as long.
exec::TokenSource tokens_of(const Scenario& scenario);

}  // namespace stretto::cli
