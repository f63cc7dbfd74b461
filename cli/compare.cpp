#include "compare/compare.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ask/run/compare.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/commands.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "model/overlap/overlap.hpp"
#include "report/comparison_screen.hpp"
#include "report/html.hpp"
#include "report/layout_text.hpp"
#include "report/trace.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::cli {
namespace {

std::string about(const Scenario& scenario) {
  return fmt::format("scenario {}: {} layers, hidden {}, {} x {} tokens a micro-batch, {}; link {:g} GB/s, {:g} us",
                     scenario.name, scenario.model.num_layers, scenario.model.hidden_size, scenario.model.seq_length,
                     scenario.training.micro_batch_size, layout_text(scenario.parallel, scenario.num_microbatches()),
                     scenario.cluster.link_GBps, scenario.cluster.link_latency_us);
}

std::vector<TraceSection> trace_of(const compare::Result& result) {
  std::vector<TraceSection> sections;
  for (const compare::RowTimelines& t : result.timelines) {
    const std::string title = t.mode + ", " + std::to_string(t.ranks) + (t.ranks == 1 ? " rank" : " ranks");
    sections.push_back({"predicted " + title, &t.schedule, &t.predicted_step, &t.predicted});
    sections.push_back({"measured " + title, &t.schedule, &t.measured_step, &t.measured});
  }
  return sections;
}

HtmlReport page(const Scenario& scenario, const sim::Platform& platform, const compare::Result& run) {
  HtmlReport report;
  report.title = scenario.name + ": predicted and measured";
  report.about = {about(scenario), "platform " + run.comparison.platform};
  report.device_bytes = platform.memory_bytes;
  report.summary = comparison_table(run.comparison);
  if (!run.comparison.rows.empty()) report.remarks = comparison_remarks(run.comparison);
  if (!run.complete) report.remarks.push_back("interrupted; shown is what was finished");
  const ExcerptLimits limits = limits_of_page(2 * run.timelines.size());
  for (std::size_t i = 0; i < run.timelines.size(); ++i) {
    const compare::RowTimelines& t = run.timelines[i];
    HtmlStep step;
    step.row = run.comparison.rows[i];
    const Scenario at = with_mode(scenario, t.mode, t.ranks);
    step.layout = layout_text(at.parallel, at.num_microbatches());
    for (const Communicator& communicator : t.schedule.communicators) step.communicators.push_back(communicator.name);
    step.predicted = excerpt(t.schedule, t.predicted_step.programs, t.predicted, limits);
    step.measured = excerpt(t.schedule, t.measured_step.programs, t.measured, limits);
    step.memory.roles = memory_use(t.schedule, t.plan);
    report.steps.push_back(std::move(step));
  }
  return report;
}

struct CompareOptions : ScenarioOptions {
  bool verbose = false;
  std::string color = "auto";
};

void print_comparison(const Comparison& comparison, const CompareOptions& options, std::ostream& out) {
  const bool is_screen = &out == &std::cout;  // elsewhere nobody has asked what the terminal can show
  const Ink ink = is_screen ? ink_of_output(options.color) : Ink();
  if (options.verbose)
    out << comparison_text(comparison);
  else if (is_screen)
    print_screen(comparison_screen(comparison, ink), ink);
  else
    out << comparison_screen(comparison, ink);
}

void compare_as(const CompareOptions& options, ScenarioRun& run) {
  const Scenario& scenario = run.scenario;
  const sim::Platform platform = load_platform(options, scenario, options.backend);
  ask::require_comparable(platform, options.backend);
  run.choose_fusions(options, &platform);
  watch_interrupts();
  Progress progress;
  const exec::Machine machine = run.machine(sim::cores_per_device(platform, scenario.cluster));
  const compare::Result result = compare::run(
      scenario, platform, machine,
      [&](const std::string& line) {
        if (run.is_first()) progress.show(line);
      },
      interrupted);
  if (!run.is_first()) {
    if (!result.complete) throw runtime_failure("");
    return;
  }
  progress.clear();
  if (options.verbose) run.out << about(scenario) << "\nplatform " << result.comparison.platform << "\n";
  for (const std::string& note : run.notes) run.out << "note: " << note << "\n";
  if (!run.notes.empty() || options.verbose) run.out << "\n";
  if (!result.comparison.rows.empty()) print_comparison(result.comparison, options, run.out);
  if (!options.verbose)
    run.out << fmt::format("scenario {} on {}\n", printable(scenario.name), printable(result.comparison.platform));
  write_json(options.json, ask::json_of(result, run.cpu_affinity()));
  if (!options.trace.empty()) write_trace(options.trace.path(), trace_of(result));
  if (!options.html.empty()) write_text(options.html, render_html(page(scenario, platform, result)));
  if (!result.complete) throw runtime_failure("interrupted; shown is what was finished");
}

void compare_command(const CompareOptions& options) {
  run_ranked(
      options,
      {"compare",
       "compare in several processes needs --backend cuda: what communication between processes of a host costs is "
       "not measured. In one process all ranks of a host run, as threads",
       false, false},
      [&](const Scenario& scenario) { load_platform(options, scenario, options.backend); },
      [&](ScenarioRun& run) { compare_as(options, run); });
}

std::string modes_help() {
  std::string help = "Overlap modes, for [compare] modes:";
  for (const OverlapMode& mode : overlap_modes()) help += fmt::format("\n  {:<38}  {}", mode.name, mode.meaning);
  return help;
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "every overlap mode at every number of ranks: predicted, measured, error");
  command->footer(modes_help());
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  command->add_flag("--verbose", options->verbose, "all columns, what explains each difference, advice");
  add_color_option(*command, options->color);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  add_rank_options(*command, *options);
  command->callback([options] {
    if (options->verbose) options->further.push_back("--verbose");
    if (options->color != "auto") options->further.push_back("--color=" + options->color);
    compare_command(*options);
  });
}

}  // namespace stretto::cli
