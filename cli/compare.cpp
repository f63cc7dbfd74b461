#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/compare_run.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "exec/launch/spawn.hpp"
#include "model/overlap/overlap.hpp"
#include "report/html.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

struct CompareCommand : CommonOptions {
  std::string backend = "host";
  int ranks = 0;  // processes to start; 0: this one has all ranks, unless a launcher says otherwise
};

std::string about(const Scenario& scenario) {
  return fmt::format(
      "scenario {}: {} layers, hidden {}, {} x {} tokens a micro-batch, {} micro-batches a step and rank; link {:g} "
      "GB/s, {:g} us",
      scenario.name, scenario.model.num_layers, scenario.model.hidden_size, scenario.model.seq_length,
      scenario.training.micro_batch_size, scenario.num_microbatches(), scenario.cluster.link_GBps,
      scenario.cluster.link_latency_us);
}

HtmlReport page(const Scenario& scenario, const sim::Platform& platform, const CompareRun& run) {
  HtmlReport report;
  report.title = scenario.name + ": predicted and measured";
  report.about = {about(scenario), "platform " + run.comparison.platform};
  report.device_bytes = platform.memory_bytes;
  report.summary = comparison_table(run.comparison);
  if (!run.comparison.rows.empty()) report.remarks = comparison_remarks(run.comparison);
  if (!run.complete) report.remarks.push_back("interrupted; shown is what was finished");
  const ExcerptLimits limits = limits_of_page(2 * run.timelines.size());
  for (std::size_t i = 0; i < run.timelines.size(); ++i) {
    const ComparedTimelines& t = run.timelines[i];
    HtmlStep step;
    step.row = run.comparison.rows[i];
    for (const Communicator& communicator : t.schedule.communicators) step.communicators.push_back(communicator.name);
    step.predicted = excerpt(t.schedule, t.predicted_programs, t.predicted, limits);
    step.measured = excerpt(t.schedule, t.measured_programs, t.measured, limits);
    step.memory = memory_use(t.schedule, t.plan);
    report.steps.push_back(std::move(step));
  }
  return report;
}

void compare_as(const CompareCommand& options, launch::ProcessGroup* processes, std::ostream& out) {
  if (processes) require_same(*processes, options, options.backend);
  const bool is_first = processes == nullptr || processes->rank() == 0;
  const Scenario scenario = read_scenario(options.scenario, options.set);
  if (processes) watch(*processes, scenario);
  if (is_first) options.files.claim_outputs(scenario);
  const sim::Platform platform = load_platform(options, scenario, options.backend);
  const bool is_gpu = options.backend == "cuda";
  if (platform.gpu.has_value() != is_gpu)
    throw input_error("platform " + platform.name + " was calibrated on a " + (is_gpu ? "host" : "GPU") +
                      ", and the backend is " + options.backend + "; expected one that `stretto calibrate --backend " +
                      options.backend + "` wrote: name it with --platform");
  watch_interrupts();
  Progress progress;
  const CompareRun run = run_compare(
      scenario, platform, is_gpu ? on_gpu(processes) : on_host(cores_of(scenario, platform)),
      [&](const std::string& line) {
        if (is_first) progress.show(line);
      },
      interrupted, processes);
  if (!is_first) {
    if (!run.complete) throw runtime_failure("");
    return;
  }
  progress.clear();
  out << about(scenario) << "\nplatform " << run.comparison.platform << "\n\n";
  if (!run.comparison.rows.empty()) out << comparison_text(run.comparison);
  write_json(options.json, comparison_json(run.comparison));
  if (!options.trace.empty()) {
    std::vector<TraceSection> sections;
    for (const ComparedTimelines& t : run.timelines) {
      const std::string title = t.mode + ", " + std::to_string(t.ranks) + (t.ranks == 1 ? " rank" : " ranks");
      sections.push_back({"predicted " + title, &t.schedule, &t.predicted_programs, &t.predicted});
      sections.push_back({"measured " + title, &t.schedule, &t.measured_programs, &t.measured});
    }
    write_trace(options.trace.path(), sections);
  }
  if (!options.html.empty()) write_text(options.html, render_html(page(scenario, platform, run)));
  if (!run.complete) throw runtime_failure("interrupted; shown is what was finished");
}

void compare(const CompareCommand& options) {
  const std::optional<launch::World> world = find_world(options.ranks);
  const bool is_one_of_several = world && world->size > 1;
  if ((is_one_of_several || options.ranks > 0) && options.backend != "cuda")
    throw input_error(
        "compare in several processes needs --backend cuda: what communication between processes of a host costs is "
        "not measured. In one process all ranks of a host run, as threads");
  if (options.ranks > 0) {
    // What is wrong for all is said once.
    const Scenario scenario = read_scenario(options.scenario, options.set);
    options.files.claim_outputs(scenario);
    load_platform(options, scenario, options.backend);
    return launch::spawn_ranks(options.ranks, arguments_of_a_rank("compare", options, options.backend));
  }
  if (!is_one_of_several) return compare_as(options, nullptr, std::cout);
  run_as_one_of(*world,
                [&](launch::ProcessGroup& processes, std::ostream& out) { compare_as(options, &processes, out); });
}

std::string modes_help() {
  std::string help = "Overlap modes, for [compare] modes:";
  for (const OverlapMode& mode : overlap_modes()) help += fmt::format("\n  {:<38}  {}", mode.name, mode.meaning);
  return help;
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareCommand>();
  CLI::App* command =
      app.add_subcommand("compare", "every overlap mode at every number of ranks: predicted, measured, error");
  command->footer(modes_help());
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  add_backend_option(*command, options->backend);
  add_ranks_option(*command, options->ranks);
  command->callback([options] { compare(*options); });
}

}  // namespace stretto::cli
