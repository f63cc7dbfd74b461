#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "model/overlap/left_out.hpp"
#include "predict/fit_memory.hpp"
#include "predict/fusions.hpp"
#include "predict/knobs.hpp"
#include "predict/predict_modes.hpp"
#include "predict/predict_step.hpp"
#include "predict/recipes.hpp"
#include "predict/resolution.hpp"
#include "predict/run.hpp"
#include "predict/sensitivity.hpp"
#include "report/critical_path.hpp"
#include "report/html.hpp"
#include "report/layout_text.hpp"
#include "report/prediction.hpp"
#include "report/table.hpp"
#include "report/trace.hpp"
#include "report/units.hpp"
#include "sim/network/rings.hpp"
#include "sweep/near.hpp"

namespace stretto::cli {
namespace {

struct SimulateOptions : CommonOptions {
  std::string engine = "fluid";
  double backbone_GBps = 0;
  bool modes = false, fit = false, limits = false;
};

// Returns the predicted step in the form of the HTML page.
HtmlStep html_step(const predict::PredictedStep& of) {
  const Schedule& schedule = of.schedule;
  HtmlStep step;
  step.row.mode = schedule.name;
  step.row.ranks = schedule.mesh.ranks();
  step.row.predicted_ms = of.prediction.step_ms;
  step.row.predicted = of.prediction.breakdown;
  step.layout = layout_text(of.prediction.parallel, of.prediction.micro_batches);
  step.row.operations = operation_times(schedule, of.result.programs, {&of.result.timeline, 1}, {}, {});
  for (const Communicator& communicator : schedule.communicators) step.communicators.push_back(communicator.name);
  step.predicted = excerpt(schedule, of.result.programs, of.result.timeline);
  step.memory = of.prediction.memory;
  return step;
}

// The results of `--modes`: every mode compared with the plain schedule, those that are not tried, every knob with the
// scenario without it, and the step in every precision.
struct Modes {
  std::vector<predict::PredictedMode> modes;
  std::vector<LeftOutMode> left_out;
  std::vector<predict::KnobOff> knobs;
  std::vector<predict::RecipeStep> recipes;
};

// The results of `--limits`.
struct Limits {
  std::vector<std::pair<std::string, double>> path;  // of the critical path (report/critical_path.hpp)
  std::vector<predict::Sensitivity> numbers;
  std::vector<predict::BetterMachine> machines;
  std::vector<sweep::SingleChange> changes;
};

Limits limits_of(const SimulateOptions& options, const Scenario& scenario, const sim::Platform& platform,
                 const predict::Fusions& fusions, const predict::PredictedStep& step) {
  const double step_ms = step.prediction.step_ms;
  return {path_shares(step.schedule, step.result, critical_path(step.result, step.result.timeline)),
          predict::sensitivities_of(scenario, platform), predict::better_machines(scenario, platform),
          sweep::faster_changes(scenario, platform, step_ms, [&](const std::vector<std::string>& set) {
            Scenario changed = scenario_of(options, set);
            fusions.apply(changed);
            return changed;
          })};
}

std::string text_of(const Limits& limits, double step_ms) {
  constexpr std::size_t kShown = 3;
  std::vector<sweep::SingleChange> best = limits.changes;
  best.resize(std::min(kShown, best.size()));
  return "\n" + path_text(limits.path) + "\n\nhow the step changes with each number:\n\n" +
         sensitivity_table(limits.numbers).text() + "\n" + machines_table(limits.machines, step_ms).text() + "\n" +
         (best.empty() ? "no single change of the scenario makes it faster\n" : changes_table(best, step_ms).text());
}

// Returns advice on every mode but the plain schedule.
Table advice_of(const std::vector<predict::PredictedMode>& modes) {
  std::vector<Advice> advice;
  for (const predict::PredictedMode& m : modes)
    if (&m != &modes.front()) advice.push_back(m.advice);
  return advice_table(advice);
}

// Searches for changes with which the step fits, if --fit requests the search.
std::optional<predict::FitSearch> fit_search(const SimulateOptions& options, const Scenario& scenario,
                                             const sim::Platform& platform, const sim::SimOptions& sim_options,
                                             const predict::Fusions& fusions, const DeviceMemory& memory) {
  if (!options.fit) {
    if (memory.fit() != Fit::fits) std::cout << "\n--fit looks for changes with which it fits\n";
    return std::nullopt;
  }
  return predict::find_fitting(
      scenario, platform,
      [&](const std::vector<std::string>& set) {
        Scenario changed = scenario_of(options, set);
        fusions.apply(changed);
        return changed;
      },
      sim_options);
}

std::string text_of(const predict::FitSearch& search) {
  std::string text = search.fitting.empty() ? "no change that was tried makes it fit\n" : fitting_table(search).text();
  if (!search.complete) text += fmt::format("not all combinations were tried, but {}\n", search.tried);
  return text;
}

std::string text_of(const Modes& m, double step_ms) {
  std::string text = "\n" + modes_table(m.modes).text();
  if (m.modes.size() > 1) text += "\n" + advice_of(m.modes).text();
  if (!m.knobs.empty()) text += "\n" + predict::knobs_text(step_ms) + "\n" + knobs_table(m.knobs).text();
  if (!m.recipes.empty()) text += "\n" + predict::recipes_text() + "\n" + recipes_table(m.recipes).text();
  if (!m.left_out.empty()) text += "\nmodes that cannot act here:\n" + predict::left_out_table(m.left_out).text();
  return text;
}

// Adds tables, and a bar for each mode except those that are off and the scenario itself, which has its bar already.
void add_modes(HtmlReport& report, const Modes& m, const Prediction& p) {
  report.tables.push_back({"modes", "Overlap modes",
                           "The step of each mode alone, and the parts that it consists of; of plain: its share of the "
                           "plain schedule's step.",
                           modes_table(m.modes)});
  if (m.modes.size() > 1)
    report.tables.push_back(
        {"advice", "Which mode to use", "Each mode alone against the plain schedule.", advice_of(m.modes)});
  if (!m.knobs.empty())
    report.tables.push_back({"without", "What each knob brings",
                             "Of " + predict::knobs_text(p.step_ms) + ". What knobs save does not add up.",
                             knobs_table(m.knobs)});
  if (!m.recipes.empty())
    report.tables.push_back({"recipes", "What a lower precision would bring",
                             "The step with " + predict::recipes_text() + ".", recipes_table(m.recipes)});
  if (!m.left_out.empty())
    report.tables.push_back({"left-out", "Modes that cannot act here", "The first closed gate of each, and why.",
                             predict::left_out_table(m.left_out)});
  std::vector<HtmlStep> steps;
  for (const predict::PredictedMode& mode : m.modes) {
    if (mode.is_scenario || !mode.advice.off_because.empty()) continue;
    HtmlStep& step = steps.emplace_back();
    step.row.mode = mode.mode;
    step.row.ranks = p.ranks;
    step.row.predicted_ms = mode.step_ms;
    step.row.predicted = mode.breakdown;
    step.layout = layout_text(p.parallel, p.micro_batches);
    step.communicators = mode.communicators;
  }
  report.steps.insert(report.steps.begin(), steps.begin(), steps.end());
}

void write_page(const SimulateOptions& options, const sim::Platform& platform, const predict::PredictedStep& step,
                const std::optional<Modes>& modes, const std::optional<Limits>& limits,
                const std::optional<predict::Run>& run, const std::optional<predict::FitSearch>& search) {
  const Prediction& p = step.prediction;
  HtmlReport report;
  report.title = fmt::format("{}, {} on {}: predicted", p.scenario, layout_text(p.parallel), p.platform);
  report.about = {about_text(p), platform.date.empty() ? fmt::format("platform {} ({})", platform.name, platform.device)
                                                       : fmt::format("platform {} ({}, {})", platform.name,
                                                                     platform.device, platform.date)};
  report.summary = prediction_table(p);
  report.remarks = {limits_text(p)};
  if (limits) report.remarks.push_back(path_text(limits->path));
  if (search) report.remarks.push_back(text_of(*search));
  for (const std::string& note : p.notes) report.remarks.push_back("note: " + note);
  report.steps = {html_step(step)};
  if (modes) add_modes(report, *modes, p);
  report.tables.push_back({"memory-parts", "Memory of the fullest " + p.device,
                           "The parts of the memory that is in use at the peak; they add up to it.",
                           memory_table(p.memory)});
  if (run)
    report.tables.push_back(
        {"run", "The run", "Closed forms on top of the step, from the numbers of [run].", predict::run_table(*run)});
  report.device_bytes = platform.memory_bytes;
  write_text(options.html, render_html(report));
}

void simulate_command(const SimulateOptions& options) {
  Scenario scenario = scenario_of(options);
  options.files.claim_outputs(scenario);
  const sim::Platform platform = load_platform(options, scenario);
  const predict::Fusions fusions = predict::open_fusions(scenario, options.scenario, options.set, platform);
  fusions.apply(scenario);
  const auto [sim_options, simulated] = predict::engine_of(options.engine, options.backbone_GBps, platform, scenario);
  if (options.limits && sim_options.network != sim::NetworkKind::fluid)
    throw input_error(
        "--limits: expected the fluid network, on which it changes numbers and settings, got --engine simgrid");
  keep_within_free_memory();
  const Patience patience(scenario);
  const auto keys = predict::read_run_input(options.scenario, options.set, scenario, simulated);
  // All else needs no timeline of the whole step.
  const bool needs_whole = !options.trace.empty() || !options.html.empty() || options.limits;
  const predict::QuickStep quick(scenario);
  predict::PredictedStep step;
  if (needs_whole)
    step = predict::predict_step(scenario, simulated, sim_options);
  else
    step.prediction = predict::predict_times(quick, simulated, sim_options);
  if (!fusions.note.empty()) step.prediction.notes.push_back(fusions.note);
  if (auto note = predict::unresolved_graphs(scenario, simulated, sim_options, step.prediction.step_ms))
    step.prediction.notes.push_back(std::move(*note));
  const Prediction& p = step.prediction;
  // Some keys of [run] are wrong only beside the step; then nothing is printed.
  std::optional<predict::Run> run;
  if (keys) run = predict::predict_run(*keys, quick, p, simulated, sim_options);
  std::cout << about_text(p) << "\n\n"
            << prediction_table(p).text() << "\n"
            << memory_tables_text(p.memory) << "\n"
            << limits_text(p)
            << fmt::format("\n{} operations simulated in {:.4f} s; with building and verifying the schedule {:.4f} s\n",
                           p.operations, p.simulate_s, p.whole_s);
  for (const std::string& note : p.notes) std::cout << "note: " << note << "\n";
  std::optional<Modes> modes;
  if (options.modes) {
    modes.emplace().modes = predict::predict_modes(scenario, simulated, sim_options, &quick);
    modes->left_out = modes_left_out(scenario);
    modes->knobs = predict::predict_without(scenario, simulated, sim_options, p.step_ms, modes->modes);
    modes->recipes = predict::predict_recipes(scenario, simulated, sim_options, &quick);
    std::cout << text_of(*modes, p.step_ms);
  }
  std::optional<Limits> limits;
  if (options.limits) {
    limits = limits_of(options, scenario, simulated, fusions, step);
    std::cout << text_of(*limits, p.step_ms);
  }
  if (run) std::cout << "\n" << predict::run_table(*run).text();
  const std::optional<predict::FitSearch> search =
      fit_search(options, scenario, simulated, sim_options, fusions, p.memory);
  if (search) std::cout << "\n" << text_of(*search);

  nlohmann::json json = prediction_json(p);
  json["modes"] = modes ? predict::modes_json(modes->modes) : nlohmann::json(nullptr);
  json["modes_left_out"] = modes ? predict::left_out_json(modes->left_out) : nlohmann::json(nullptr);
  json["without"] = modes ? predict::knobs_json(modes->knobs) : nlohmann::json(nullptr);
  json["recipes"] = modes ? predict::recipes_json(modes->recipes) : nlohmann::json(nullptr);
  json["path"] = limits ? path_json(limits->path) : nlohmann::json(nullptr);
  json["run"] = run ? predict::run_json(*run) : nlohmann::json(nullptr);
  json["numbers"] = limits ? predict::sensitivity_json(limits->numbers) : nlohmann::json(nullptr);
  json["machines"] = limits ? predict::machines_json(limits->machines, p.step_ms) : nlohmann::json(nullptr);
  json["changes"] = limits ? sweep::changes_json(limits->changes, p.step_ms) : nlohmann::json(nullptr);
  json["fits_with"] = search ? fitting_json(*search) : nlohmann::json(nullptr);
  write_json(options.json, json);
  if (!options.trace.empty())
    write_trace(options.trace.path(),
                {{"predicted " + p.schedule, &step.schedule, &step.result, &step.result.timeline}});
  if (!options.html.empty()) write_page(options, platform, step, modes, limits, run, search);
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      app.add_subcommand("simulate", "predict the step: time, MFU, memory, exposed communication, what limits it");
  add_scenario_options(*command, *options);
  add_platform_option(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  command->add_option("--engine", options->engine, "network: fluid (closed form) or simgrid (flows share links)")
      ->check(CLI::IsMember({"fluid", "simgrid"}));
  command->add_flag("--modes", options->modes,
                    "also: every overlap mode that the layout allows, and the step without each knob");
  command->add_flag("--limits", options->limits,
                    "also, on published GPUs: how the step changes with each number of the platform, on better "
                    "machines, and by single changes of the scenario");
  command->add_flag("--fit", options->fit,
                    "also: changes with which the step fits into memory, and the steps they give");
  command
      ->add_option(
          "--backbone-GBps", options->backbone_GBps,
          "one link that all traffic between ranks crosses, on GPUs of the tables all between nodes (inside an "
          "NVLink domain it does not act); 0: none; needs --engine simgrid")
      ->check(CLI::NonNegativeNumber);
  command->callback([options] { simulate_command(*options); });
}

}  // namespace stretto::cli
