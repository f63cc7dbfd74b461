#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "exec/data.hpp"
#include "exec/machine.hpp"
#include "exec/model_state.hpp"
#include "model/scenario.hpp"
#include "model/verify/verify.hpp"

namespace stretto::exec {

// A step that is measured and not trained with: the schedule of a scenario on a machine, with a state and a batch in
// memory, and on the device. Not movable: the executor refers to the schedule.
struct ReadyStep {
  Scenario scenario;
  Schedule schedule;
  VerifiedSchedule verified;
  std::unique_ptr<Executor> executor;
  std::vector<BoundProgram> programs;  // of all ranks, wherever they are

  // `fill` writes what lives across steps. Throws as verifier and executor do.
  using Fill = std::function<void(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of)>;
  ReadyStep(Scenario scenario, const Machine& machine, const RunOptions& options, const TokenSource& tokens,
            const Fill& fill = initialise_state);
  ReadyStep(const ReadyStep&) = delete;
  ReadyStep& operator=(const ReadyStep&) = delete;
};

// The scenario's data; without any, random bytes, on which a step takes as long.
TokenSource tokens_of(const Scenario& scenario);

}  // namespace stretto::exec
