#include "ask/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predict/quick_step.hpp"
#include "predict/resolution.hpp"
#include "report/critical_path.hpp"
#include "report/prediction.hpp"
#include "report/sheet.hpp"

namespace stretto::ask {
namespace {

using Json = nlohmann::json;

Modes modes_of(const Asked& asked, const predict::QuickStep& step, const sim::Platform& platform,
               const sim::SimOptions& engine, double step_ms) {
  const Scenario& scenario = step.scenario();
  Modes modes;
  modes.modes = predict::predict_modes(scenario, platform, engine, &step);
  modes.left_out = modes_left_out(scenario);
  if (engine.network == sim::NetworkKind::fluid)
    modes.remedies = predict::remedies_of(scenario, platform, modes.modes,
                                          [&](const std::vector<std::string>& further) { return asked.with(further); });
  modes.knobs = predict::predict_without(scenario, platform, engine, step_ms, modes.modes, &step);
  modes.recipes = predict::predict_recipes(scenario, platform, engine, &step);
  return modes;
}

StepLimits limits_of(const Asked& asked, const sim::Platform& platform, const predict::PredictedStep& step) {
  const auto read = [&](const std::vector<std::string>& further) { return asked.with(further); };
  return {path_shares(step.schedule, step.result, critical_path(step.result, step.result.timeline)),
          predict::sensitivities_of(asked.scenario, platform), predict::better_machines(asked.scenario, platform),
          sweep::faster_changes(asked.scenario, platform, step.prediction.step_ms, read)};
}

Assumptions assumptions_of(const Asked& asked, const habits::Answer& made, const sim::Platform& platform,
                           const sim::SimOptions& engine, double step_ms) {
  Assumptions assumed{made, {}, step_ms, step_ms};
  for (const habits::Reading& reading : made.readings) {
    double ms = 0;
    try {
      const Scenario other = asked.with(reading.set);
      ms = predict::QuickStep(other).step_s(platform, other.framework, engine) * 1e3;
      assumed.least_ms = std::min(assumed.least_ms, ms);
      assumed.most_ms = std::max(assumed.most_ms, ms);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
    }
    assumed.readings_ms.push_back(ms);
  }
  return assumed;
}

StepInterval interval_of(const predict::QuickStep& step, const sim::Platform& platform,
                         const std::optional<Assumptions>& assumed, double step_ms) {
  const Framework& framework = step.scenario().framework;
  // Constants move the step on either network by the same share; the closed form is the quicker one.
  predict::Spread spread = predict::spread_of(step, platform, framework, step.step_s(platform, framework));
  predict::add_containers(spread);
  if (assumed) {
    const double down = std::log(step_ms / assumed->least_ms), up = std::log(assumed->most_ms / step_ms);
    spread.down = std::hypot(spread.down, down);
    spread.up = std::hypot(spread.up, up);
    if (down + up > 0) spread.shares.push_back({"assumed settings", (down + up) / 2});
    std::stable_sort(spread.shares.begin(), spread.shares.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return {step_ms * std::exp(-spread.down), step_ms * std::exp(spread.up), std::move(spread.shares),
          predict::published_accuracy(step.scenario(), platform.name)};
}

Json json_of(const Assumptions& assumed) {
  Json json = habits::json_of(assumed.answer);
  json["readings"] = Json::array();
  for (std::size_t i = 0; i < assumed.readings_ms.size(); ++i)
    json["readings"].push_back(
        {{"reading", assumed.answer.readings[i].what},
         {"step_ms", assumed.readings_ms[i] > 0 ? Json(assumed.readings_ms[i]) : Json(nullptr)}});
  json["least_ms"] = assumed.least_ms;
  json["most_ms"] = assumed.most_ms;
  return json;
}

}  // namespace

SimulateAnswer simulate(Asked& asked, const SimulateOptions& options) {
  if (!asked.platform) asked.read_platform();
  const Scenario& scenario = asked.scenario;
  const auto [engine, platform] = predict::engine_of(options.engine, options.backbone_GBps, *asked.platform, scenario);
  if (options.limits && engine.network != sim::NetworkKind::fluid)
    throw input_error(
        "--limits: expected the fluid network, on which it changes numbers and settings, got --engine simgrid");
  const auto keys = predict::read_run_input(asked.request.scenario, asked.request.set, scenario, platform);
  const predict::QuickStep quick(scenario);
  SimulateAnswer answer;
  predict::PredictedStep& step = answer.step;
  if (options.timeline || options.limits)
    step = predict::predict_step(scenario, platform, engine);
  else
    step.prediction = predict::predict_times(quick, platform, engine);
  Prediction& p = step.prediction;
  if (!asked.fusions.note.empty()) p.notes.push_back(asked.fusions.note);
  if (auto note = predict::unresolved_graphs(scenario, platform, engine, p.step_ms)) p.notes.push_back(*note);
  if (const habits::Answer* made = habits::answer_of(asked.request.scenario))
    answer.assumed = assumptions_of(asked, *made, platform, engine, p.step_ms);
  if (options.interval && platform.accelerator)
    answer.interval = interval_of(quick, platform, answer.assumed, p.step_ms);
  if (keys) answer.run = predict::predict_run(*keys, quick, p, platform, engine);
  if (options.modes) answer.modes = modes_of(asked, quick, platform, engine, p.step_ms);
  if (options.limits) answer.limits = limits_of(asked, platform, step);
  if (options.fit)
    answer.fits_with = predict::find_fitting(
        scenario, platform, [&](const std::vector<std::string>& set) { return asked.with(set); }, engine);
  return answer;
}

std::optional<StepInterval> interval_of(const Asked& asked) {
  const sim::Platform& platform = *asked.platform;
  if (!platform.accelerator) return std::nullopt;
  const predict::QuickStep step(asked.scenario);
  return interval_of(step, platform, std::nullopt, 1e3 * step.step_s(platform, asked.scenario.framework));
}

Json json_of(const std::optional<StepInterval>& interval) {
  if (!interval) return {{"step_low_ms", nullptr}, {"step_high_ms", nullptr}, {"interval_from", nullptr}};
  Json causes = Json::array(), published;
  for (const auto& [name, share] : interval->shares)
    causes.push_back({{"cause", name}, {"half_width_pct", 100 * share}});
  if (const auto& steps = interval->published)
    published = {{"steps", steps->steps}, {"mean_abs_error_pct", steps->mean_abs_error_pct}};
  return {{"step_low_ms", interval->low_ms},
          {"step_high_ms", interval->high_ms},
          {"interval_from", {{"causes", std::move(causes)}, {"published", std::move(published)}}}};
}

Json json_of(const SimulateAnswer& answer) {
  const double step_ms = answer.step.prediction.step_ms;
  Json json = prediction_json(answer.step.prediction);
  for (const char* of_an_option : {"modes", "modes_left_out", "remedies", "without", "recipes", "path", "numbers",
                                   "machines", "changes", "run", "fits_with"})
    json[of_an_option] = nullptr;
  if (const auto& modes = answer.modes) {
    json["modes"] = predict::modes_sheet(modes->modes).json();
    json["modes_left_out"] = predict::left_out_sheet(modes->left_out).json();
    json["remedies"] = predict::remedies_sheet(modes->remedies).json();
    json["without"] = predict::knobs_sheet(modes->knobs).json();
    json["recipes"] = predict::recipes_sheet(modes->recipes).json();
  }
  if (const auto& limits = answer.limits) {
    json["path"] = path_json(limits->path);
    json["numbers"] = predict::sensitivity_sheet(limits->numbers).json();
    json["machines"] = predict::machines_sheet(limits->machines, step_ms).json();
    json["changes"] = sweep::changes_sheet(limits->changes, step_ms).json();
  }
  json.update(json_of(answer.interval));
  json["assumed"] = answer.assumed ? json_of(*answer.assumed) : Json(nullptr);
  if (answer.run) json["run"] = predict::run_json(*answer.run);
  if (answer.fits_with) json["fits_with"] = predict::fitting_sheet(*answer.fits_with).json();
  return json;
}

}  // namespace stretto::ask
