#include "predict/knobs.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/parallel.hpp"
#include "model/overlap/overlap.hpp"
#include "model/overlap/without.hpp"
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

}  // namespace

std::vector<KnobOff> predict_without(const Scenario& scenario, const sim::Platform& platform,
                                     const sim::SimOptions& options, double step_ms,
                                     const std::vector<PredictedMode>& modes, const QuickStep* own) {
  const std::vector<WithoutKnob> without = without_each_knob(scenario);
  if (without.empty()) return {};
  std::optional<Doubts> doubts;
  std::vector<double> own_logs;
  if (platform.accelerator) {
    doubts.emplace(scenario, platform);
    std::optional<QuickStep> built;
    const QuickStep& step = own != nullptr ? *own : built.emplace(scenario);
    own_logs = doubts->logs(step, step.step_s(platform, scenario.framework));
  }
  std::vector<KnobOff> knobs(without.size());
  const auto simulate = [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    Scenario off = scenario;
    off.overlap = without[i].overlap;
    const QuickStep step(off);
    const std::optional<double> known = known_step_ms(scenario, off.overlap, modes);
    const double ms = known ? *known : 1e3 * step.step_s(platform, off.framework, options);
    knobs[i] = {without[i].knob, without[i].also_off, ms, ms - step_ms};
    if (!doubts) return;
    const double fluid_s =
        options.network == sim::NetworkKind::fluid ? ms * 1e-3 : step.step_s(platform, off.framework);
    const Gain cost = doubts->gain(own_logs, doubts->logs(step, fluid_s));
    knobs[i].low_pct = -100 * cost.high;
    knobs[i].high_pct = -100 * cost.low;
    knobs[i].decides = cost.decides;
  };
  // Only one SimGrid engine can exist at a time.
  if (options.network == sim::NetworkKind::fluid)
    parallel_each(std::ssize(without), simulate);
  else
    for (std::int64_t i = 0; i < std::ssize(without); ++i) simulate(i);
  return knobs;
}

std::string knobs_text(double step_ms) {
  return fmt::format(
      "each knob of the scenario switched off alone; with all of them a step takes {} (not resolved: less than {}, "
      "what "
      "two software stacks differ by, or its interval of 80 % has both signs)",
      time_text(step_ms), percent_text(kBetweenStacks));
}

Sheet knobs_sheet(const std::vector<KnobOff>& knobs) {
  const auto step_ms = [](const KnobOff& k) { return k.step_ms - k.saved_ms; };  // the scenario's own
  const auto saved_pct = [=](const KnobOff& k) { return 100 * k.saved_ms / step_ms(k); };
  const auto resolved = [=](const KnobOff& k) {
    if (k.decides == Doubt::nothing) return is_resolved(k.saved_ms, step_ms(k));
    return std::abs(k.saved_ms) > kBetweenStacks * step_ms(k) && k.low_pct * k.high_pct > 0;
  };
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
                     {"saved_low_pct", "interval", [](const KnobOff& k) { return k.low_pct; },
                      [](const KnobOff& k) {
                        return k.decides == Doubt::nothing ? ""
                                                           : fmt::format("{:.0f} to {:.0f} %", k.low_pct, k.high_pct);
                      }},
                     {"saved_high_pct", "", [](const KnobOff& k) { return k.high_pct; }},
                     {"decides", "because", [](const KnobOff& k) { return words_of(k.decides); }},
                     {"resolved", "", resolved}}};
}

}  // namespace stretto::predict
