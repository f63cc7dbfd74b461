#include "cli/compare_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "calibrate/probes/probes.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/host/executor.hpp"
#include "exec/launch/timelines.hpp"
#include "exec/model_state.hpp"
#include "model/overlap/overlap.hpp"
#include "model/schedule/json.hpp"
#include "model/schedule/residency.hpp"
#include "model/schedule/verify.hpp"
#include "report/table.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::cli {
namespace {

// One schedule at one number of ranks, ready to run.
struct Contender : ReadyStep {
  using ReadyStep::ReadyStep;
  std::string mode;
  std::vector<std::string> equal_modes;  // which give the same schedule
  std::vector<Timeline> measured;
  double loss = kUnknown;  // of the last step of the warm-up: repeats may be more in one than in another
};

// All of a schedule but its name and what is said about it.
nlohmann::json content_of(const Schedule& schedule) {
  nlohmann::json content = write_schedule_json(schedule);
  content.erase("name");
  content.erase("notes");
  return content;
}

// A contender for every schedule that is none of those before, and last a second copy of the first (A/A).
std::vector<std::unique_ptr<Contender>> prepare(const Scenario& base, const std::vector<std::string>& modes,
                                                std::int64_t ranks, const MakeExecutor& make,
                                                const exec::TokenSource& tokens) {
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<nlohmann::json> contents;
  const auto add = [&](const std::string& mode) {
    contenders.push_back(std::make_unique<Contender>(with_mode(base, mode, ranks), make, tokens));
    contenders.back()->mode = mode;
  };
  for (const std::string& mode : modes) {
    nlohmann::json content = content_of(build_schedule(with_mode(base, mode, ranks)));
    if (const auto equal = std::find(contents.begin(), contents.end(), content); equal != contents.end()) {
      contenders[static_cast<std::size_t>(equal - contents.begin())]->equal_modes.push_back(mode);
      continue;
    }
    add(mode);
    contents.push_back(std::move(content));
  }
  add(modes.front());
  return contenders;
}

// How the host's cores are while steps are measured on them.
struct Cores {
  calibrate::SgemmYardstick yardstick;
  calibrate::DetourProbe detours;
  std::vector<double> sgemm_GFLOPs = {};

  Cores(int busy, int all) : yardstick(busy, all), detours(busy) {}
};

double step_ms(const Timeline& timeline) { return to_ms(timeline.step_end - timeline.step_begin); }

BreakdownMs median_breakdown(const Contender& c) {
  std::vector<double> compute, core_wait, exposed, bubble;
  std::vector<std::vector<double>> exposed_by(c.schedule.communicators.size());
  for (const Timeline& timeline : c.measured) {
    const BreakdownMs b = to_ms(mean_breakdown(c.schedule, c.programs, timeline));
    compute.push_back(b.compute);
    core_wait.push_back(b.core_wait);
    exposed.push_back(b.exposed);
    bubble.push_back(b.bubble);
    for (std::size_t i = 0; i < exposed_by.size(); ++i) exposed_by[i].push_back(b.exposed_by[i]);
  }
  BreakdownMs medians{median(compute), median(core_wait), median(exposed), median(bubble), {}};
  for (const std::vector<double>& one : exposed_by) medians.exposed_by.push_back(median(one));
  return medians;
}

ComparisonRow row_of(const Contender& c, const sim::SimResult& predicted, std::int64_t ranks) {
  ComparisonRow row;
  row.mode = c.mode;
  row.equal_modes = c.equal_modes;
  row.ranks = ranks;
  row.predicted_ms = to_ms(predicted.step);
  for (const Timeline& timeline : c.measured) row.measured_ms.push_back(step_ms(timeline));
  row.predicted = to_ms(mean_breakdown(c.schedule, predicted.programs, predicted.timeline));
  row.measured = median_breakdown(c);
  const std::span<const Timeline> steps =
      predicted.disturbed.empty() ? std::span(&predicted.timeline, 1) : std::span(predicted.disturbed);
  row.operations = operation_times(c.schedule, predicted.programs, steps, c.programs, c.measured);
  row.loss = c.loss;
  return row;
}

double model_GFLOP(const Schedule& schedule) {
  double flops = 0;
  for (const Call& call : schedule.programs.front().order)
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
      flops += model_flops(schedule.operations[schedule.blocks[call.block].ops[i]].work);
  return flops * 1e-9;
}

// Speed of the cores against that at calibration; 1 while the calibrated speed lies between the quartiles of the
// readings, which then cannot tell the two apart. Correcting by less than the readings scatter adds noise to
// predictions.
double speed_against(const std::vector<double>& readings_GFLOPs, double calibrated_GFLOPs) {
  if (calibrated_GFLOPs >= percentile(readings_GFLOPs, 25) && calibrated_GFLOPs <= percentile(readings_GFLOPs, 75))
    return 1;
  return median(readings_GFLOPs) / calibrated_GFLOPs;
}

// Up to the limit others come now and then, whatever ranks do; above it somebody computes all the time.
sim::Disturbance disturbance_of(const calibrate::DetourProbe& detours) {
  sim::Disturbance disturbance = detours.disturbance();
  disturbance.shares_by_time = 100 * disturbance.share > Comparison::kBusy_pct;
  return disturbance;
}

// What a prediction is made for.
struct Moment {
  double core_speed = 1;
  sim::Costs costs;
};
using MomentOf = std::function<Moment(const Schedule& schedule, bool as_calibrated)>;

// Of the contenders at `ranks`, which have all been measured as often and are used up; the last is not shown.
void add_rows(CompareRun& run, std::vector<std::unique_ptr<Contender>>& contenders, std::int64_t ranks,
              const MomentOf& moment_of, const sim::SimOptions& options) {
  std::vector<std::vector<double>> steps_ms;
  for (const auto& contender : contenders) {
    steps_ms.emplace_back();
    for (const Timeline& timeline : contender->measured) steps_ms.back().push_back(step_ms(timeline));
  }
  run.comparison.noise[ranks] = noise_floor(steps_ms);
  contenders.pop_back();
  for (const auto& contender : contenders) {
    Contender& c = *contender;
    const Moment moment = moment_of(c.schedule, false);
    sim::SimResult predicted = sim::simulate(c.schedule, moment.costs, options);
    ComparisonRow row = row_of(c, predicted, ranks);
    row.core_speed = moment.core_speed;
    row.lost_pct = 100 * moment.costs.disturbance.share;
    row.burst_ms = to_ms(moment.costs.disturbance.length);
    row.predicted_as_calibrated_ms = to_ms(sim::simulate(c.schedule, moment_of(c.schedule, true).costs, options).step);
    if (ranks == 1 && &contender == &contenders.front())
      run.comparison.step_GFLOPs = model_GFLOP(c.schedule) / row.measured_median_ms() * 1e3;
    Timeline& middle = c.measured[index_of_median(row.measured_ms)];
    run.comparison.rows.push_back(std::move(row));
    ComparedTimelines kept{c.mode,
                           ranks,
                           {},
                           std::move(c.plan),
                           std::move(predicted.programs),
                           std::move(c.programs),
                           std::move(predicted.timeline),
                           std::move(middle)};
    c.executor.reset();
    kept.schedule = std::move(c.schedule);
    run.timelines.push_back(std::move(kept));
  }
}

// What a mode asks for and does not get. Knobs that are off in the plain schedule already, whose notes `plain`
// collects, are the scenario's and not the mode's.
void add_notes(const Schedule& schedule, const std::string& mode, std::int64_t ranks, std::vector<std::string>& plain,
               std::vector<std::string>& notes) {
  if (mode == "plain") {
    plain = schedule.notes;
    return;
  }
  const std::string at = fmt::format(" at {} {}: ", ranks, ranks == 1 ? "rank" : "ranks");
  for (const std::string& note : schedule.notes) {
    const bool is_said =
        std::any_of(notes.begin(), notes.end(), [&](const std::string& said) { return said.ends_with(at + note); });
    if (!is_said && std::find(plain.begin(), plain.end(), note) == plain.end()) notes.push_back(mode + at + note);
  }
}

}  // namespace

int cores_of(const Scenario& scenario, const sim::Platform& platform) {
  return static_cast<int>(scenario.cluster.cores_per_device > 0 ? scenario.cluster.cores_per_device : platform.cores);
}

CompareRun run_compare(const Scenario& as_given, const sim::Platform& platform, const MakeExecutor& make,
                       const std::function<void(const std::string&)>& progress, const std::function<bool()>& stop,
                       launch::ProcessGroup* processes) {
  const bool on_host = !platform.gpu;
  Scenario scenario = as_given;
  if (!on_host) {
    scenario.cluster.ranks_per_device = processes ? 1 : 0;  // 0: all ranks share the GPU
    scenario.cluster.network = processes ? Network::nccl : Network::links;
  }
  std::vector<std::string> modes = scenario.compare.modes;
  if (modes.empty()) modes = modes_of(scenario);
  try {
    for (const std::string& mode : modes)
      if (mode != kAsGiven) find_overlap_mode(mode);
  } catch (const Error& error) {
    throw input_error(scenario.file + ": [compare] modes: " + error.what());
  }
  // The plain schedule is what the others are measured against.
  if (const auto plain = std::find(modes.begin(), modes.end(), "plain"); plain == modes.end())
    modes.insert(modes.begin(), "plain");
  else
    std::rotate(modes.begin(), plain, plain + 1);
  std::vector<std::int64_t> ranks = scenario.compare.ranks;
  if (ranks.empty()) ranks = {scenario.parallel.ranks()};
  if (processes) ranks = {processes->size()};
  // Only comparing needs them to be possible: the same file may be trained in a layout that they do not fit.
  const std::int64_t of_model = scenario.parallel.model_ranks();
  for (const std::int64_t n : ranks)
    if (n % of_model != 0)
      throw input_error(scenario.file +
                        ": [compare] ranks: expected multiples of tensor_model_parallel_size x "
                        "pipeline_model_parallel_size = " +
                        std::to_string(of_model) + ", got " + std::to_string(n));
  const exec::TokenSource tokens = tokens_of(scenario);
  const int cores = cores_of(scenario, platform);
  // Before anything is measured: some modes need more lanes, and so cores for more channels, than others.
  CompareRun run;
  run.comparison.on_gpu = !on_host;
  std::size_t streams = 0;
  for (const std::int64_t n : ranks) {
    std::vector<std::string> plain;
    for (const std::string& mode : modes) {
      try {
        const Schedule schedule = build_schedule(with_mode(scenario, mode, n));
        if (on_host) check_residency(schedule, cores);
        sim::cost_schedule(schedule, platform, scenario.cluster);  // whether the platform knows what all of it costs
        streams = std::max(streams, static_cast<std::size_t>(processes ? 1 : n) * schedule.lanes.size());
        add_notes(schedule, mode, n, plain, run.comparison.notes);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::input) throw;
        throw input_error(scenario.file + ": mode " + mode + " at " + std::to_string(n) + " ranks: " + error.what());
      }
    }
  }

  if (!on_host) {
    // Those of all modes exist at once, although one runs at a time: as many queues as there are.
    constexpr std::size_t kQueues = 32;
    const std::string shared = cuda::reserve_hardware_queues(std::max(kQueues, streams));
    if (!shared.empty()) run.comparison.notes.push_back(shared);
    if (processes && as_given.compare.ranks != ranks && !as_given.compare.ranks.empty())
      run.comparison.notes.push_back(fmt::format("[compare] ranks is not looked at: there are {} processes", ranks[0]));
    if (!processes && as_given.cluster.ranks_per_device > 0 &&
        as_given.cluster.ranks_per_device < *std::max_element(ranks.begin(), ranks.end()))
      run.comparison.notes.push_back("ranks_per_device is not looked at: all ranks share one GPU");
  }
  // Steps on a GPU are graphs, of which the next begins when all of the one before is over: every step is a first one.
  sim::SimOptions sim_options;
  if (!on_host && scenario.training.enable_cuda_graph) sim_options.max_steps = 1;
  run.comparison.platform = platform.name + " (" + platform.device + ", " + platform.date + ")";
  for (const std::int64_t n : ranks) {
    std::vector<std::unique_ptr<Contender>> contenders = prepare(scenario, modes, n, make, tokens);
    const bool fills_cores = n > 1;
    std::optional<Cores> state;
    if (on_host) state.emplace(fills_cores ? cores : 1, cores);
    const std::int64_t repeats = scenario.compare.repeats;
    // Processes run the same steps, so none is repeated because one of them was disturbed.
    Undisturbed measure(processes ? 0 : repeats * static_cast<std::int64_t>(contenders.size()));
    for (std::int64_t repeat = -1; repeat < repeats; ++repeat) {
      run.complete = !(processes ? processes->any(stop()) : stop());
      if (!run.complete) break;
      progress("ranks " + std::to_string(n) + ": " +
               (repeat < 0 ? std::string("warming up")
                           : "turn " + std::to_string(repeat + 1) + " of " + std::to_string(repeats)));
      // Whoever goes first changes from turn to turn: the first of a turn meets caches that the last one left.
      for (std::size_t i = 0; i < contenders.size(); ++i) {
        Contender& contender = *contenders[(i + static_cast<std::size_t>(repeat + 1)) % contenders.size()];
        if (repeat < 0) {
          contender.executor->run(2);
          contender.executor->download(exec::Executor::Part::results);
          const std::int64_t here = contender.executor->programs().front().rank;
          contender.loss = exec::read_metrics(contender.schedule, exec::memory_of(*contender.executor), here).loss;
          continue;
        }
        // The step and what tells how the cores were meanwhile are kept, or made again, together.
        Timeline timeline;
        double GFLOPs = 0;
        calibrate::DetourProbe::Sample jumps;
        measure([&] {
          timeline = contender.executor->run(2);
          if (!state) return;
          GFLOPs = state->yardstick.run_GFLOPs();
          jumps = state->detours.run();
        });
        if (processes) timeline = launch::gather_timeline(*processes, std::move(timeline), contender.programs);
        contender.measured.push_back(std::move(timeline));
        if (!state) continue;
        state->sgemm_GFLOPs.push_back(GFLOPs);
        state->detours.add(jumps);
      }
    }
    // Once steps have run: not everything is known before.
    for (const auto& contender : contenders)
      for (const std::string& note : contender->executor->notes())
        if (std::find(run.comparison.notes.begin(), run.comparison.notes.end(), note) == run.comparison.notes.end())
          run.comparison.notes.push_back(note);
    run.comparison.set_aside += measure.set_aside();
    run.comparison.runs += measure.runs();
    const bool has_turns = !contenders.front()->measured.empty();
    if (has_turns && (!processes || processes->rank() == 0)) {
      const sim::Quantity& calibrated = fills_cores ? platform.sgemm_filled_GFLOPs : platform.sgemm_GFLOPs;
      add_rows(
          run, contenders, n,
          [&](const Schedule& schedule, bool as_calibrated) {
            const double speed = state && !as_calibrated ? speed_against(state->sgemm_GFLOPs, calibrated.value) : 1;
            Moment moment{speed, sim::cost_schedule(schedule, platform, scenario.cluster, speed)};
            if (state && !as_calibrated) moment.costs.disturbance = disturbance_of(state->detours);
            return moment;
          },
          sim_options);
      if (n == 1 && state) run.comparison.sgemm_GFLOPs = median(state->sgemm_GFLOPs);
    }
    if (!run.complete) break;
  }
  return run;
}

}  // namespace stretto::cli
