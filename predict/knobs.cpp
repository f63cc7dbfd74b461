#include "predict/knobs.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parallel.hpp"
#include "model/overlap/overlap.hpp"
#include "model/overlap/without.hpp"
#include "predict/quick_step.hpp"
#include "predict/resolution.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

// Returns the step of a mode with exactly these settings.
std::optional<double> known_step_ms(const Scenario& scenario, const Overlap& overlap,
                                    const std::vector<PredictedMode>& modes) {
  for (const PredictedMode& mode : modes)
    if (with_mode(scenario, mode.mode, scenario.parallel.ranks()).overlap == overlap) return mode.step_ms;
  return std::nullopt;
}

double step_ms_with(Scenario scenario, const Overlap& overlap, const sim::Platform& platform,
                    const sim::SimOptions& options) {
  scenario.overlap = overlap;
  return 1e3 * QuickStep(scenario).step_s(platform, scenario.framework, options);
}

}  // namespace

std::vector<KnobOff> predict_without(const Scenario& scenario, const sim::Platform& platform,
                                     const sim::SimOptions& options, double step_ms,
                                     const std::vector<PredictedMode>& modes) {
  const std::vector<WithoutKnob> without = without_each_knob(scenario);
  std::vector<double> ms(without.size());
  const auto simulate = [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    const std::optional<double> known = known_step_ms(scenario, without[i].overlap, modes);
    ms[i] = known ? *known : step_ms_with(scenario, without[i].overlap, platform, options);
  };
  // Only one SimGrid engine can exist at a time.
  if (options.network == sim::NetworkKind::fluid)
    parallel_each(std::ssize(without), simulate);
  else
    for (std::int64_t i = 0; i < std::ssize(without); ++i) simulate(i);
  std::vector<KnobOff> knobs;
  for (std::size_t i = 0; i < without.size(); ++i)
    knobs.push_back({without[i].knob, without[i].also_off, ms[i], ms[i] - step_ms});
  return knobs;
}

std::string knobs_text(double step_ms) {
  return fmt::format(
      "each knob of the scenario switched off alone; with all of them a step takes {} (not resolved: less than {}, "
      "about "
      "the least error of predictions)",
      time_text(step_ms), percent_text(kResolved));
}

Table knobs_table(const std::vector<KnobOff>& knobs) {
  Table table({"knob", "off with it", "step without it", "the knob saves", "of the step"});
  for (const KnobOff& k : knobs) {
    const double step_ms = k.step_ms - k.saved_ms;
    table.add_row({k.knob, fmt::format("{}", fmt::join(k.also_off, ", ")), time_text(k.step_ms),
                   (k.saved_ms < 0 ? "−" : "") + time_text(std::abs(k.saved_ms)),
                   fmt::format("{:+.1f} %{}", 100 * k.saved_ms / step_ms,
                               is_resolved(k.saved_ms, step_ms) ? "" : " (not resolved)")});
  }
  return table;
}

nlohmann::json knobs_json(const std::vector<KnobOff>& knobs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const KnobOff& k : knobs)
    rows.push_back({{"knob", k.knob},
                    {"also_off", k.also_off},
                    {"step_ms", k.step_ms},
                    {"saved_ms", k.saved_ms},
                    {"saved_pct", 100 * k.saved_ms / (k.step_ms - k.saved_ms)},
                    {"resolved", is_resolved(k.saved_ms, k.step_ms - k.saved_ms)}});
  return rows;
}

}  // namespace stretto::predict
