#include "diagnose/diagnose.hpp"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ask/run/diagnose.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "diagnose/page.hpp"
#include "diagnose/recognise.hpp"
#include "predict/run.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

struct DiagnoseOptions : CommonOptions {
  std::string measured;
  std::string section, window, model;
  std::int64_t rank = -1;
};

// Without a scenario the trace says one.
void recognise_command(const DiagnoseOptions& options) {
  if (!options.set.empty() || !options.json.empty() || !options.trace.empty() || !options.html.empty())
    throw input_error(
        "SCENARIO: expected one with --set, --json, --trace or --html; without it the command prints the scenario that "
        "the trace shows");
  Progress progress;
  progress.show("reading " + options.measured);
  const diagnose::Found found = ask::recognised(
      {options.measured, options.section, options.window, options.rank, options.model, options.platform});
  progress.clear();
  std::cout << found.text();
}

void diagnose_command(const DiagnoseOptions& options) {
  if (options.scenario.empty()) return recognise_command(options);
  if (!options.model.empty())
    throw input_error("--model: expected no SCENARIO, which has the model, got " + in_quotes(options.scenario));
  ask::Asked asked(options);
  const Scenario& scenario = asked.scenario;
  const std::vector<std::string> files = trace::trace_files(options.measured);
  std::vector<Input> inputs = inputs_of(scenario);
  for (const std::string& file : files) inputs.push_back({"TRACE", file});
  options.files.claim_outputs(inputs);
  asked.read_platform();
  const sim::Platform& platform = *asked.platform;
  // No key of [run] acts here, but a wrong one is an error, too.
  predict::require_run_keys(options.scenario, options.set, platform);
  Progress progress;
  progress.show("reading " + options.measured + " and predicting the step");
  const auto explained = ask::explained(
      asked, {options.measured, options.section, options.window, options.rank, options.model, options.platform});
  const auto& [traces, step, diagnosed] = *explained;
  progress.clear();
  std::cout << diagnosis_text(diagnosed, traces, step.prediction);
  write_json(options.json, ask::json_of(*explained));
  if (options.trace.empty() && options.html.empty()) return;
  const diagnose::MeasuredTimeline timeline = timeline_of(step.schedule, diagnosed.ranks);
  if (!options.trace.empty())
    write_trace(options.trace.path(),
                {{"predicted " + step.schedule.name, &step.schedule, &step.result, &step.result.timeline},
                 {"measured", &step.schedule, &timeline.step, &timeline.timeline, &timeline.extra}});
  if (!options.html.empty()) write_text(options.html, render_html(diagnosis_page(diagnosed, traces, step, timeline)));
}

}  // namespace

void add_diagnose(CLI::App& app) {
  auto options = std::make_shared<DiagnoseOptions>();
  CLI::App* command =
      app.add_subcommand("diagnose", "a trace of a run against the predicted step: what differs, and why");
  options->files
      .add_input(
          *command, "TRACE", options->measured,
          "a trace of PyTorch's profiler (JSON, gzip too), of Nsight Systems (.sqlite) or of --trace; or a folder "
          "with one of each rank")
      ->required();
  add_scenario_options(*command, *options);
  command->get_option("SCENARIO")->required(false);
  command->add_option("--model", options->model,
                      "the model's name, where no SCENARIO is given: the scenario that the trace shows is printed");
  add_platform_option(*command, *options);
  command->add_option("--rank", options->rank, "the rank of a trace that does not say it; default: 0")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command->add_option(
      "--window", options->window,
      "BEGIN:END in milliseconds from the first kernel on: a part of a step to compare alone, such as a "
      "layer or a pair of chunks");
  command->add_option("--section", options->section,
                      "a part of the title of the run to explain, where a trace of Stretto's has several");
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  command->callback([options] { diagnose_command(*options); });
}

}  // namespace stretto::cli
