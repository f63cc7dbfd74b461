#include "report/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "calibrate/probes/probes.hpp"
#include "cli/commands.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "exec/cuda/cuda.hpp"
#include "exec/cuda/peak.hpp"
#include "exec/launch/timelines.hpp"
#include "exec/ready_step.hpp"
#include "model/overlap/overlap.hpp"
#include "report/critical_path.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

// Of a GPU.
Peak peak_of(const exec::ReadyStep& step) {
  const auto device = step.executor->device();
  if (!device) return {};
  const auto TFLOPs = cuda::peak_TFLOPs(device->name, step.schedule.compute_dtype);
  return {TFLOPs.value_or(0) * 1e3, device->memory_GBps,
          TFLOPs ? "its data sheet, and the clock and width of its memory" : "the clock and width of its memory"};
}

// The least time takes the most that a core was seen to do: the fastest of several readings. Of memory nothing is said:
// what a core reads comes from caches, mostly.
Peak peak_of_host(const exec::ReadyStep& step, double fastest_GFLOPs) {
  const int threads = step.schedule.placement.threads_per_rank;
  return {threads * fastest_GFLOPs, 0,
          threads == 1 ? "the fastest sgemm 1024³ on a core between the steps"
                       : fmt::format("the fastest sgemm 1024³ on a core between the steps, times {}", threads)};
}

void profile_as(const ScenarioOptions& options, ScenarioRun& run) {
  const Scenario& scenario = run.scenario;
  launch::ProcessGroup* const processes = run.processes;
  std::vector<std::string>& notes = run.notes;
  std::ostream& out = run.out;
  const exec::TokenSource tokens = exec::tokens_of(scenario);
  if (run.is_gpu) {
    const Schedule schedule = build_schedule(scenario);
    const std::size_t ranks = processes ? 1 : static_cast<std::size_t>(schedule.mesh.ranks());
    if (const std::string shared = cuda::reserve_hardware_queues(ranks * schedule.lanes.size()); !shared.empty())
      notes.push_back(shared);
  }
  watch_interrupts();
  std::optional<Patience> patience;
  if (run.is_first()) patience.emplace(about_building(scenario));
  exec::ReadyStep step(scenario, run.machine(static_cast<int>(scenario.cluster.cores_per_device)),
                       exec::run_options(scenario), tokens);
  patience.reset();
  for (const auto& more : {step.schedule.notes, step.executor->notes()})
    notes.insert(notes.end(), more.begin(), more.end());
  const std::size_t known = step.executor->notes().size();
  const auto device = step.executor->device();
  Profile profile;
  profile.device = device ? device->name : "this host";
  out << fmt::format("scenario {}, schedule {}, {} rank{}, on {}\n", scenario.name, step.schedule.name,
                     step.schedule.mesh.ranks(), step.schedule.mesh.ranks() == 1 ? "" : "s", profile.device);
  for (const std::string& note : notes) out << "note: " << note << "\n";
  out << std::flush;

  profile.peak = peak_of(step);
  std::optional<calibrate::SgemmYardstick> yardstick;
  if (!device && step.schedule.compute_dtype == Dtype::f32) yardstick.emplace(1, 1);  // the host has this one
  double fastest_GFLOPs = 0;
  Progress progress;
  std::vector<Timeline> timelines;
  const std::int64_t repeats = scenario.compare.repeats;
  // Processes run the same steps, so none is repeated because one of them was disturbed.
  Undisturbed measure(run.is_gpu ? 0 : 2 * repeats);
  // Of two steps the second is timed: caches and clocks are as a step leaves them. Both kinds take turns.
  constexpr int kSteps = 2;
  bool is_complete = true;
  for (std::int64_t repeat = -1; repeat < repeats; ++repeat) {
    is_complete = !(processes ? processes->any(interrupted()) : interrupted());
    if (!is_complete) break;
    if (run.is_first())
      progress.show(repeat < 0 ? std::string("warming up") : fmt::format("turn {} of {}", repeat + 1, repeats));
    Timeline plain, timed;
    measure([&] { plain = step.executor->run_without_rows(kSteps); });
    measure([&] { timed = step.executor->run(kSteps); });
    if (processes) timed = launch::gather_timeline(*processes, std::move(timed), step.programs);
    if (yardstick) fastest_GFLOPs = std::max(fastest_GFLOPs, yardstick->run_GFLOPs());
    if (repeat < 0) continue;
    profile.step_ms.push_back(to_ms(plain.step_end - plain.step_begin));
    profile.timed_step_ms.push_back(to_ms(timed.step_end - timed.step_begin));
    timelines.push_back(std::move(timed));
  }
  progress.clear();
  const std::vector<std::string> since = step.executor->notes();
  for (std::size_t i = known; i < since.size(); ++i) out << "note: " << since[i] << "\n";
  if (!run.is_first() || timelines.empty()) {
    if (!is_complete) throw runtime_failure(run.is_first() ? "interrupted" : "");
    return;
  }
  if (yardstick) profile.peak = peak_of_host(step, fastest_GFLOPs);
  profile.operations = profile_operations(step.schedule, step.programs, timelines, profile.peak);
  const Timeline& middle = timelines[index_of_median(profile.timed_step_ms)];
  const CriticalPath path = critical_path(step.schedule, step.programs, middle);
  profile.path_operations = std::ssize(path.rows);
  profile.path_compute_ms = to_ms(path.compute);
  profile.path_communication_ms = to_ms(path.communication);
  profile.path_between_ms = to_ms(path.between);
  out << profile_text(profile);
  write_json(options.json, profile_json(profile));
  if (!options.trace.empty())
    write_trace(options.trace.path(), {{"measured " + step.schedule.name, &step.schedule, &step.programs, &middle}});
  if (!is_complete) throw runtime_failure("interrupted; shown is what was finished");
}

void profile_command(const ScenarioOptions& options) {
  run_ranked(
      options,
      {"profile",
       "profile in several processes needs --backend cuda. In one process all ranks of a host run, as threads"},
      [](const Scenario& scenario) { exec::tokens_of(scenario); }, [&](ScenarioRun& run) { profile_as(options, run); });
}

}  // namespace

void add_profile(CLI::App& app) {
  auto options = std::make_shared<ScenarioOptions>();
  CLI::App* command = app.add_subcommand(
      "profile", "run a step and say where its time goes: each operation against the least it can take");
  add_scenario_options(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_rank_options(*command, *options);
  command->callback([options] { profile_command(*options); });
}

}  // namespace stretto::cli
