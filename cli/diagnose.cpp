#include "diagnose/diagnose.hpp"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/gpu_name.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "diagnose/page.hpp"
#include "diagnose/recognise.hpp"
#include "habits/model_names.hpp"
#include "predict/run.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

struct DiagnoseOptions : CommonOptions {
  std::string measured;
  std::string section, window, model;
  std::int64_t rank = -1;
};

diagnose::KnownModel known_model(const std::string& name) {
  if (name.empty()) return {};
  const habits::ModelName* model = habits::model_named(name);
  if (model == nullptr) {
    const std::string nearest = habits::nearest_model(name);
    throw input_error("--model: expected the name of a model (`stretto list models`), got " + in_quotes(name) +
                      (nearest.empty() ? "" : "; did you mean " + in_quotes(nearest) + "?"));
  }
  diagnose::KnownModel known{model->name, habits::keys_of_model(*model)};
  known.shape = parse_scenario("[model]\nseq_length = 4096\n" + known.keys, "model " + model->name).model;
  return known;
}

// The platform of the GPU that the trace names; "" where none has it.
std::string platform_of(const diagnose::Traces& traces) {
  const std::string device = traces.section.ranks.front().device;
  if (gpu_model(device).empty()) return "";
  for (const std::string& name : data_names("platforms"))
    if (gpu_model(sim::read_platform(data_file("platforms", name)).device) == gpu_model(device)) return name;
  return "";
}

// Without a scenario the trace says one.
void recognise_command(const DiagnoseOptions& options) {
  if (!options.set.empty() || !options.json.empty() || !options.trace.empty() || !options.html.empty())
    throw input_error(
        "SCENARIO: expected one with --set, --json, --trace or --html; without it the command prints the scenario that "
        "the trace shows");
  const std::vector<std::string> files = trace::trace_files(options.measured);
  keep_within_free_memory();
  Progress progress;
  progress.show("reading " + options.measured);
  diagnose::Traces traces = diagnose::read_traces(files, options.rank, options.section);
  if (!options.window.empty()) keep_window(traces, diagnose::parse_window(options.window));
  const std::string platform = options.platform.empty() ? platform_of(traces) : options.platform;
  const diagnose::Found found = diagnose::recognise(traces, known_model(options.model), platform);
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
  keep_within_free_memory();
  Progress progress;
  progress.show("reading " + options.measured);
  diagnose::Traces traces = diagnose::read_traces(files, options.rank, options.section);
  diagnose::require_same_gpu(traces, platform);
  if (!options.window.empty()) keep_window(traces, diagnose::parse_window(options.window));
  progress.show("predicting the step");
  const predict::PredictedStep step = predict::predict_step(scenario, platform);
  const bool on_gpu = platform.gpu.has_value() || platform.accelerator.has_value();
  progress.show("matching kernels to operations");
  const diagnose::Diagnosed diagnosed = diagnose::diagnose(step, traces, scenario.name, on_gpu);
  progress.clear();
  std::cout << diagnosis_text(diagnosed, traces, step.prediction);
  write_json(options.json, diagnosis_json(diagnosed, traces, step.prediction));
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
