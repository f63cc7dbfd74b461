#include "compare/compare.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/statistics.hpp"
#include "compare/conditions.hpp"
#include "compare/grid.hpp"
#include "compare/turns.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/launch/process_group.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::compare {
namespace {

using Contenders = std::vector<std::unique_ptr<Contender>>;

BreakdownMs median_breakdown(const Contender& c) {
  std::vector<BreakdownMs> parts;
  for (const Timeline& timeline : c.measured)
    parts.push_back(to_ms(mean_breakdown(c.schedule, c.all.programs, timeline)));
  const auto median_of = [&](const auto& part) {
    std::vector<double> values;
    for (const BreakdownMs& b : parts) values.push_back(part(b));
    return median(values);
  };
  BreakdownMs medians;
  for (double BreakdownMs::*part : {&BreakdownMs::compute, &BreakdownMs::core_wait, &BreakdownMs::exposed,
                                    &BreakdownMs::queue_wait, &BreakdownMs::bubble})
    medians.*part = median_of([&](const BreakdownMs& b) { return b.*part; });
  for (std::size_t i = 0; i < c.schedule.communicators.size(); ++i)
    medians.exposed_by.push_back(median_of([&](const BreakdownMs& b) { return b.exposed_by[i]; }));
  return medians;
}

std::vector<double> steps_ms(const Contender& contender) {
  std::vector<double> ms;
  for (const Timeline& timeline : contender.measured) ms.push_back(step_ms(timeline));
  return ms;
}

ComparisonRow row_of(const Contender& c, const sim::SimResult& predicted, const Conditions& conditions) {
  ComparisonRow row;
  row.mode = c.mode;
  row.equal_modes = c.equal_modes;
  row.ranks = c.schedule.mesh.ranks();
  row.predicted_ms = to_ms(predicted.step);
  row.measured_ms = steps_ms(c);
  row.predicted = to_ms(mean_breakdown(c.schedule, predicted.programs, predicted.timeline));
  row.measured = median_breakdown(c);
  const Timeline& median_step = c.measured[index_of_median(row.measured_ms)];
  row.traffic =
      traffic_of(c.schedule, c.all.programs, median_step, mean_breakdown(c.schedule, c.all.programs, median_step));
  row.peak_bytes = c.verified.plan.peak_bytes();
  const std::span<const Timeline> steps =
      predicted.disturbed.empty() ? std::span(&predicted.timeline, 1) : std::span(predicted.disturbed);
  row.operations = operation_times(c.schedule, predicted.programs, steps, c.all.programs, c.measured);
  row.loss = c.loss;
  row.core_speed = conditions.core_speed;
  row.lost_pct = 100 * conditions.disturbance.share;
  row.burst_ms = to_ms(conditions.disturbance.length);
  return row;
}

// Moves the timelines out of the contender and frees its memory.
RowTimelines timelines_of(Contender& c, sim::SimResult& predicted, const ComparisonRow& row) {
  c.executor.reset();
  return {c.mode,
          row.ranks,
          std::move(c.verified.schedule),
          std::move(c.verified.plan),
          std::move(predicted),
          std::move(c.all),
          std::move(predicted.timeline),
          std::move(c.measured[index_of_median(row.measured_ms)])};
}

double model_GFLOP(const Schedule& schedule) {
  double flops = 0;
  for (const Call& call : schedule.programs.front().order)
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
      flops += model_flops(schedule.operations[schedule.blocks[call.block].ops[i]].work);
  return flops * 1e-9;
}

// Adds the rows of contenders, which must have equally many measurements and are moved from. The last one (A/A) gets no
// row.
void add_rows(Result& result, Contenders& contenders, const sim::Platform& platform, const Conditions& conditions,
              const sim::SimOptions& options) {
  const std::int64_t ranks = contenders.front()->schedule.mesh.ranks();
  std::vector<std::vector<double>> all_ms;
  for (const auto& contender : contenders) all_ms.push_back(steps_ms(*contender));
  result.comparison.noise[ranks] = noise_floor(all_ms);
  contenders.pop_back();
  for (const auto& contender : contenders) {
    Contender& c = *contender;
    sim::SimResult predicted = predict(c, platform, conditions, options);
    ComparisonRow row = row_of(c, predicted, conditions);
    row.predicted_as_calibrated_ms = to_ms(predict(c, platform, {}, options).step);
    if (ranks == 1 && contender == contenders.front())
      result.comparison.step_GFLOPs = model_GFLOP(c.schedule) / row.measured_median_ms() * 1e3;
    result.timelines.push_back(timelines_of(c, predicted, row));
    result.comparison.rows.push_back(std::move(row));
  }
}

// Adds the notes that executors have only after steps have run.
void add_notes(std::vector<std::string>& notes, const Contenders& contenders) {
  for (const auto& contender : contenders)
    for (const std::string& note : contender->executor->notes())
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

}  // namespace

Result run(const Scenario& given, const sim::Platform& platform, const exec::Machine& machine,
           const std::function<void(const std::string&)>& progress, const std::function<bool()>& stop) {
  Grid grid = grid_of(given, platform, machine);
  const exec::TokenSource tokens = exec::tokens_of(given);
  const bool on_gpu = platform.gpu.has_value();
  Result result;
  result.comparison.on_gpu = on_gpu;
  result.comparison.platform = platform.name + " (" + platform.device + ", " + platform.date + ")";
  result.comparison.notes = grid.notes;
  if (on_gpu)
    // Streams of all modes exist at once, although only one mode runs at a time, so as many queues are reserved as
    // there are.
    if (const std::string shared = cuda::reserve_hardware_queues(std::max(cuda::kMostQueues, grid.streams));
        !shared.empty())
      result.comparison.notes.push_back(shared);
  // Steps on a GPU are graphs, and each begins when the whole previous one is over: every step is a first one.
  sim::SimOptions options;
  if (on_gpu && given.training.enable_cuda_graph) options.max_steps = 1;
  const int all_cores = sim::cores_per_device(platform, grid.scenario.cluster);
  for (std::size_t at = 0; at < grid.ranks.size(); ++at) {
    const std::int64_t n = grid.ranks[at];
    Contenders contenders = contenders_of(grid, at, machine, tokens);
    const bool fills_cores = n > 1;
    std::optional<CoreMonitor> cores;
    if (!on_gpu) cores.emplace(fills_cores ? all_cores : 1, all_cores);
    const Turns turns =
        run_turns(contenders, given.compare.repeats, machine.processes, cores ? &*cores : nullptr, progress, stop);
    result.complete = turns.complete;
    result.comparison.runs += turns.runs;
    result.comparison.set_aside += turns.set_aside;
    add_notes(result.comparison.notes, contenders);
    const bool has_turns = !contenders.front()->measured.empty();
    if (has_turns && (!machine.processes || machine.processes->rank() == 0)) {
      const Quantity& calibrated = fills_cores ? platform.sgemm_filled_GFLOPs : platform.sgemm_GFLOPs;
      if (cores) result.comparison.loads[n] = cores->load();
      add_rows(result, contenders, platform, cores ? conditions_of(*cores, calibrated.value) : Conditions{}, options);
      if (n == 1 && cores) result.comparison.sgemm_GFLOPs = median(cores->sgemm_GFLOPs());
    }
    if (!result.complete) break;
  }
  return result;
}

}  // namespace stretto::compare
