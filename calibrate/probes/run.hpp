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

// Is called where a probe can end: before an executor is made and before each run. Throws to end it.
using MayEnd = std::function<void()>;
// The same machine, whose executors call `may_end`. So no probe needs to know that it can be interrupted.
Machine ending(Machine machine, MayEnd may_end);

// Verifies and plans the schedule, runs it `warmup` times and then `repeats` times, and returns the timelines of the
// latter. `prepare` may write inputs after memory has been allocated, and upload them.
struct ProbeRun {
  std::vector<BoundProgram> programs;
  std::vector<Timeline> timelines;
};
ProbeRun run_probe(const Schedule& schedule, const Machine& machine, const RunOptions& options, int warmup, int repeats,
                   const std::function<void(exec::Executor&)>& prepare = {});

// Random numbers, of a standard normal distribution, into every parameter that rank 0 has, and uploads them. Zeros and
// constants take a GPU less power, and it clocks higher. Parameters are bf16 or f32.
void fill_randomly(const Schedule& schedule, exec::Executor& executor);

// [operation template], in microseconds.
using TimesByOp = std::map<OpId, std::vector<double>>;
// Of the communication of rank 0, from when its last member had come: members complete together.
TimesByOp communication_times_us(const Schedule& schedule, const ProbeRun& run);
// What a transfer is taken to last at least, where less is left of what was measured.
constexpr double kLeastTransfer_us = 0.5;
// A sample a compute operation, of the median.
std::vector<Sample> compute_samples(const Schedule& schedule, const TimesByOp& times_us);
// A sample of `us`, which came from these times.
Sample sample_of(sim::WorkCost cost, double us, const std::vector<double>& times_us);

}  // namespace stretto::calibrate
