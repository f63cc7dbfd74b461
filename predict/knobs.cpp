#include "predict/knobs.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/parallel.hpp"
#include "model/overlap/overlap.hpp"
#include "model/overlap/without.hpp"
#include "predict/quick_step.hpp"
#include "predict/resolution.hpp"
#include "report/sheet.hpp"
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

Sheet knobs_sheet(const std::vector<KnobOff>& knobs) {
  const auto step_ms = [](const KnobOff& k) { return k.step_ms - k.saved_ms; };  // the scenario's own
  const auto saved_pct = [=](const KnobOff& k) { return 100 * k.saved_ms / step_ms(k); };
  const auto resolved = [=](const KnobOff& k) { return is_resolved(k.saved_ms, step_ms(k)); };
  return {knobs, std::vector<Column<KnobOff>>{
                     {"knob", "knob", [](const KnobOff& k) { return k.knob; }},
                     {"also_off", "off with it", [](const KnobOff& k) { return k.also_off; },
                      [](const KnobOff& k) { return fmt::format("{}", fmt::join(k.also_off, ", ")); }},
                     {"step_ms", "step without it", [](const KnobOff& k) { return k.step_ms; },
                      [](const KnobOff& k) { return time_text(k.step_ms); }},
                     {"saved_ms", "the knob saves", [](const KnobOff& k) { return k.saved_ms; },
                      [](const KnobOff& k) { return (k.saved_ms < 0 ? "−" : "") + time_text(std::abs(k.saved_ms)); }},
                     {"saved_pct", "of the step", saved_pct,
                      [=](const KnobOff& k) {
                        return fmt::format("{:+.1f} %{}", saved_pct(k), resolved(k) ? "" : " (not resolved)");
                      }},
                     {"resolved", "", resolved}}};
}

}  // namespace stretto::predict
