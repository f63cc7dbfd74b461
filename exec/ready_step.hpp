#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "exec/data.hpp"
#include "exec/machine.hpp"
#include "exec/state/model_state.hpp"
#include "model/scenario.hpp"
#include "model/verify/verify.hpp"

namespace stretto::exec {

// A step for measurements, not for training: the schedule of a scenario, planned and verified, on an executor whose
// memory holds a state and one batch. Not movable: the executor refers to the schedule.
struct ReadyStep {
  Scenario scenario;
  VerifiedSchedule verified;
  const Schedule& schedule = verified.schedule;
  BoundStep all;  // the programs of all ranks, including those of other processes
  std::unique_ptr<Executor> executor;

  // `schedule` is the scenario's. `fill` writes the persistent storages. Throws as verifier and executor do.
  using Fill = std::function<void(const Schedule& schedule, const Scenario& scenario, const MemoryOf& memory_of)>;
  ReadyStep(Scenario scenario, Schedule schedule, const Machine& machine, const RunOptions& options,
            const TokenSource& tokens, const Fill& fill = initialise_state);
  ReadyStep(const ReadyStep&) = delete;
  ReadyStep& operator=(const ReadyStep&) = delete;
};

// Returns the scenario's data; if it names none, random bytes: the time of a step does not depend on the data.
TokenSource tokens_of(const Scenario& scenario);

}  // namespace stretto::exec
