#include "calibrate/probes/run.hpp"

#include <memory>

#include "base/steal.hpp"
#include "model/schedule/verify.hpp"

namespace stretto::calibrate {

ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const RunOptions& options, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare) {
  const MemoryPlan plan = plan_memory(schedule);
  require_verified(schedule, &plan);
  const std::unique_ptr<exec::Executor> executor = machine.make(schedule, plan, options);
  if (prepare) prepare(*executor);
  if (warmup > 0) executor->run(warmup);
  ProbeRun run;
  run.programs = executor->programs();
  Undisturbed undisturbed(machine.processes ? 0 : 3);
  undisturbed([&] {
    run.timelines.clear();
    for (int i = 0; i < repeats; ++i) run.timelines.push_back(executor->run(machine.steps));
  });
  return run;
}

}  // namespace stretto::calibrate
