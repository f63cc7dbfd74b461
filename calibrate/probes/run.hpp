#pragma once
#include <functional>
#include <map>
#include <vector>

#include "base/timeline.hpp"
#include "calibrate/fit/linear_fit.hpp"
#include "exec/machine.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/features.hpp"

namespace stretto::calibrate {

using exec::gpu_machine, exec::host_machine, exec::Machine, exec::RunOptions;

// Called where a probe can end: before an executor is made and before each run. Throws to end the probe.
using MayEnd = std::function<void()>;
// Returns the machine with executors that call `may_end`. So no probe needs to know that it can be interrupted.
Machine ending(Machine machine, MayEnd may_end);

// Verifies and plans the schedule, runs it `warmup` times and then `repeats` times, and returns the timelines of the
// repeats. `prepare` may write inputs after memory has been allocated, and upload them.
struct ProbeRun {
  std::vector<BoundProgram> programs;
  std::vector<Timeline> timelines;
};
ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const RunOptions& options, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare = {});

// Writes random numbers of a standard normal distribution into every parameter that rank 0 has, and uploads them. With
// zeros and constants a GPU takes less power and clocks higher. Parameters are bf16 or f32.
void fill_randomly(const Schedule& schedule, exec::Executor& executor);

// [operation template], in microseconds.
using TimesByOp = std::map<OpId, std::vector<double>>;
// Returns the times of rank 0's communication, from the arrival of the last member: members complete together.
TimesByOp communication_times_us(const Schedule& schedule, const ProbeRun& run);
// The least time of a transfer, for measurements that are shorter after their overhead is deducted.
constexpr double kLeastTransfer_us = 0.5;
// Returns one sample for each compute operation, of the median.
std::vector<Sample> compute_samples(const Schedule& schedule, const TimesByOp& times_us);
// Returns a sample of `us`, which was computed from these times.
Sample sample_of(sim::WorkCost cost, double us, const std::vector<double>& times_us);

}  // namespace stretto::calibrate
