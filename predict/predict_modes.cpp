#include "predict/predict_modes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/parallel.hpp"
#include "model/overlap/overlap.hpp"
#include "predict/gain.hpp"
#include "predict/predict_step.hpp"
#include "predict/quick_step.hpp"
#include "report/exposure.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"

namespace stretto::predict {
namespace {

ModeStep mode_step(const QuickStep& step, const ExtrapolatedStep& extrapolated, const sim::Platform& platform) {
  const Breakdown b = extrapolated.mean();
  const DeviceMemory memory = step.memory(platform);
  return {
      to_ms(extrapolated.step()), to_ms(b),
      traffic_of(*extrapolated.schedule, extrapolated.programs(), extrapolated.result.timeline, b, extrapolated.rounds),
      platform.accelerator ? memory.predicted_bytes() : memory.taken_bytes(), memory.fits()};
}

// Returns why a mode gives the plain schedule here: the note of its knob.
std::string reason_of(const Schedule& schedule, const std::string& knob) {
  for (const std::string& note : schedule.notes)
    if (const std::string start = knob + " is off: "; note.starts_with(start)) return note.substr(start.size());
  return "it changes nothing here";
}

// Returns why blocking messages cost time. The pattern of a schedule with separate weight gradients assumes that F, B
// and W are equally long. They are not, and at a blocking message the stage that is ahead waits until its neighbour has
// caught up, in every micro-batch. In 1F1B both are then at an F or both at a B, and only the first and the last
// micro-batches wait.
std::string why_blocking_messages_cost(const Scenario& scenario, const Advice& advice) {
  const PipelineSchedule schedule = scenario.parallel.pipeline_schedule;
  if (!is_zero_bubble(schedule)) return {};
  const auto each_ms = [&](const ModeStep& step) {
    return step.breakdown.bubble / double(scenario.num_microbatches());
  };
  const double with_ms = each_ms(advice.step), without_ms = each_ms(advice.plain);
  if (with_ms >= without_ms) return {};
  return fmt::format(
      "without it a stage of {} waits at every message for its neighbour, whose F, B or W lasts longer than its own: "
      "a bubble of {} for each micro-batch, against {} with overlap_p2p_comm",
      name_of(schedule), time_text(without_ms), time_text(with_ms));
}

}  // namespace

std::vector<PredictedMode> predict_modes(const Scenario& scenario, const sim::Platform& platform,
                                         const sim::SimOptions& options, const QuickStep* own) {
  const std::vector<std::string> names = modes_of(scenario);
  std::vector<PredictedMode> modes(names.size());
  std::vector<std::string> plain;  // modes that act in the plain schedule
  std::optional<Doubts> doubts;
  if (platform.accelerator) doubts.emplace(scenario, platform);
  std::vector<double> plain_logs;
  const auto predict = [&](std::size_t i) {
    const std::string& name = names[i];
    const Scenario of_mode = with_mode(scenario, name, scenario.parallel.ranks());
    const bool is_scenario = of_mode.overlap == scenario.overlap;
    std::optional<QuickStep> built;
    const QuickStep& step = is_scenario && own != nullptr ? *own : built.emplace(of_mode);
    const ExtrapolatedStep extrapolated = step.extrapolate(platform, scenario.framework, options);
    PredictedMode& mode = modes[i];
    mode.mode = name;
    mode.step_ms = to_ms(extrapolated.step());
    Advice& advice = mode.advice;
    advice.mode = name;
    advice.ranks = scenario.parallel.ranks();
    advice.on_gpu = platform.accelerator || platform.gpu;
    advice.step = mode_step(step, extrapolated, platform);
    advice.plain = modes.front().advice.step;
    mode.breakdown = advice.step.breakdown;
    for (const Communicator& communicator : step.schedule().communicators)
      mode.communicators.push_back(communicator.name);
    mode.is_scenario = is_scenario;
    const auto logs = [&] {
      const double fluid_s =
          options.network == sim::NetworkKind::fluid ? mode.step_ms * 1e-3 : step.step_s(platform, scenario.framework);
      return doubts->logs(step, fluid_s);
    };
    if (i == 0) {
      plain = step.schedule().modes;
      if (doubts) plain_logs = logs();
    } else if (step.schedule().modes == plain) {
      advice.off_because = reason_of(step.schedule(), name == kAsGiven ? std::string() : find_overlap_mode(name).knob);
    } else if (doubts) {
      const Gain gain = doubts->gain(plain_logs, logs());
      advice.low_pct = 100 * gain.low;
      advice.high_pct = 100 * gain.high;
      advice.least_pct = 100 * kBetweenStacks;
      advice.decides = words_of(gain.decides);
    } else {
      advice.set_unsure(kUnsure_pct);
    }
    if (of_mode.overlap.overlap_p2p_comm && advice.off_because.empty())
      advice.because = why_blocking_messages_cost(scenario, advice);
  };
  if (names.empty()) return modes;
  predict(0);  // the others are compared with the plain schedule
  const auto predict_other = [&](std::int64_t i) { predict(static_cast<std::size_t>(i) + 1); };
  // Only one SimGrid engine can exist at a time.
  if (options.network == sim::NetworkKind::fluid)
    parallel_each(std::ssize(names) - 1, predict_other);
  else
    for (std::int64_t i = 0; i + 1 < std::ssize(names); ++i) predict_other(i);
  return modes;
}

Sheet modes_sheet(const std::vector<PredictedMode>& modes) {
  using Columns = std::vector<Column<PredictedMode>>;
  const double plain_ms = modes.empty() ? 0 : modes.front().step_ms;
  Columns columns = {{"mode", "mode", [](const PredictedMode& m) { return m.mode; }},
                     {"step_ms", "step", [](const PredictedMode& m) { return m.step_ms; },
                      [](const PredictedMode& m) { return time_text(m.step_ms); }},
                     {"", "of plain", nullptr,
                      [plain_ms](const PredictedMode& m) { return fmt::format("{:.3f}", m.step_ms / plain_ms); }}};
  // Parts that no mode has are not printed; the printed ones add up to the step.
  const auto add_part = [&](const char* key, const char* heading, double BreakdownMs::*ms, bool is_always_shown) {
    const bool is_shown = is_always_shown || std::any_of(modes.begin(), modes.end(),
                                                         [&](const PredictedMode& m) { return m.breakdown.*ms > 0; });
    columns.push_back({key, is_shown ? heading : "", [ms](const PredictedMode& m) { return m.breakdown.*ms; },
                       [ms](const PredictedMode& m) { return time_text(m.breakdown.*ms); }});
  };
  add_part("compute_ms", "compute", &BreakdownMs::compute, true);
  add_part("core_wait_ms", "core wait", &BreakdownMs::core_wait, false);
  add_part("exposed_ms", "exposed", &BreakdownMs::exposed, true);
  add_part("queue_wait_ms", "queue wait", &BreakdownMs::queue_wait, false);
  add_part("bubble_ms", "bubble", &BreakdownMs::bubble, true);
  columns.push_back({"advice", "", [&](const PredictedMode& m) {
                       return &m == &modes.front() ? nlohmann::json(nullptr) : advice_json(m.advice);
                     }});
  return {modes, columns};
}

Sheet left_out_sheet(const std::vector<LeftOutMode>& modes) {
  return {modes, std::vector<Column<LeftOutMode>>{{"mode", "mode", [](const LeftOutMode& m) { return m.mode; }},
                                                  {"why", "why not", [](const LeftOutMode& m) { return m.why; }}}};
}

}  // namespace stretto::predict
