#include "calibrate/probes/run.hpp"

#include <memory>
#include <utility>

#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "model/verify/verify.hpp"

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

TimesByOp communication_times_us(const Schedule& schedule, const ProbeRun& run) {
  TimesByOp times_us;
  for (const Timeline& timeline : run.timelines)
    for (const TimelineRow& row : timeline.rows) {
      if (row.rank != 0) continue;
      const OpId op = run.programs.front().ops[row.op].op;
      if (is_communication(schedule.operations[op].work)) times_us[op].push_back(to_us(row.end - row.transfer));
    }
  return times_us;
}

std::vector<Sample> compute_samples(const Schedule& schedule, const TimesByOp& times_us) {
  std::vector<Sample> samples;
  for (const auto& [op, times] : times_us)
    if (!is_communication(schedule.operations[op].work))
      samples.push_back(sample_of(sim::work_cost(schedule, schedule.operations[op]), median(times), times));
  return samples;
}

Sample sample_of(sim::WorkCost cost, double us, const std::vector<double>& times_us) {
  return {std::move(cost.key), std::move(cost.features), cost.cls, us, spread_pct(times_us)};
}

}  // namespace stretto::calibrate
