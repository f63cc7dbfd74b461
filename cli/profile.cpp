#include "report/profile.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/statistics.hpp"
#include "cli/commands.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "compare/profile_step.hpp"
#include "exec/ready_step.hpp"
#include "model/overlap/overlap.hpp"
#include "report/throughput.hpp"
#include "report/trace.hpp"
#include "report/units.hpp"

namespace stretto::cli {
namespace {

// Returns a warning where other programs had more than a quarter of this machine in the last minute; "" otherwise.
std::string note_of_load() {
  double load = 0;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (::getloadavg(&load, 1) != 1 || load < 0.25 * cores) return "";
  return fmt::format(
      "other programs use this machine: in the last minute {:.1f} threads wanted its {} cores. Operations are timed by "
      "the clock on the wall, so what they wait for a core counts, and their distance from their floors is too large",
      load, cores);
}

void profile_as(const ScenarioOptions& options, ScenarioRun& run) {
  const Scenario& scenario = run.scenario;
  std::vector<std::string>& notes = run.notes;
  std::ostream& out = run.out;
  const exec::TokenSource tokens = exec::tokens_of(scenario);
  run.choose_fusions(options);
  Schedule schedule = build_schedule(scenario, free_memory_bytes());
  if (run.is_gpu) run.reserve_queues(schedule);
  watch_interrupts();
  std::optional<Patience> patience;
  if (run.is_first()) patience.emplace(scenario);
  exec::ReadyStep step(scenario, std::move(schedule), run.machine(static_cast<int>(scenario.cluster.cores_per_device)),
                       exec::run_options(scenario), tokens);
  patience.reset();
  for (const auto& more : {step.schedule.notes, step.executor->notes()})
    notes.insert(notes.end(), more.begin(), more.end());
  const std::size_t known = step.executor->notes().size();
  const auto device = step.executor->device();
  out << fmt::format("scenario {}, schedule {}, {} rank{}, on {}\n", scenario.name, step.schedule.name,
                     step.schedule.mesh.ranks(), step.schedule.mesh.ranks() == 1 ? "" : "s",
                     device ? device->name : "this host");
  if (const std::string note = device ? "" : note_of_load(); !note.empty()) out << "note: " << note << "\n";
  for (const std::string& note : notes) out << "note: " << note << "\n";
  out << std::flush;

  Progress progress;
  const compare::ProfiledStep measured = compare::profile_step(
      step, scenario.compare.repeats, run.processes,
      [&](const std::string& line) {
        if (run.is_first()) progress.show(line);
      },
      interrupted);
  progress.clear();
  const std::vector<std::string> since = step.executor->notes();
  for (std::size_t i = known; i < since.size(); ++i) out << "note: " << since[i] << "\n";
  if (!run.is_first() || measured.profile.step_ms.empty()) {
    if (!measured.complete) throw runtime_failure(run.is_first() ? "interrupted" : "");
    return;
  }
  // On a host the floors say more than a share of a peak.
  const std::int64_t devices = device && run.processes ? step.schedule.mesh.ranks() : 1;
  const Throughput rate =
      throughput_of(scenario, median(measured.profile.step_ms), devices,
                    device ? data_sheet_peak(device->name, devices, step.schedule.compute_dtype) : PeakRate{});
  out << profile_text(measured.profile)
      << fmt::format("{:.0f} tokens/s, {}{}{}\n", rate.tokens_per_s, rate_text(rate.FLOPs_per_s / double(devices)),
                     devices > 1 ? " a GPU" : "", rate.mfu ? ", MFU " + percent_text(*rate.mfu) : "");
  if (!rate.doubt.empty()) out << "note: " << rate.doubt << "\n";
  nlohmann::json json = profile_json(measured.profile);
  json["tokens_per_s"] = rate.tokens_per_s;
  json["tflops_per_gpu"] = device ? nlohmann::json(rate.TFLOPs_per_device) : nlohmann::json(nullptr);
  json["mfu"] = rate.mfu ? nlohmann::json(*rate.mfu) : nlohmann::json(nullptr);
  write_json(options.json, json);
  if (!options.trace.empty())
    write_trace(options.trace.path(),
                {{"measured " + step.schedule.name, &step.schedule, &step.all, &measured.middle}});
  if (!measured.complete) throw runtime_failure("interrupted; shown is what was finished");
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
  add_mode_option(*command, *options);
  command->callback([options] { profile_command(*options); });
}

}  // namespace stretto::cli
