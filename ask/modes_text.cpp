#include "ask/modes_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "report/units.hpp"

namespace stretto::ask {
namespace {

// Returns a table with its lines indented and without the rule below its head.
std::string indented(const Table& table) {
  std::string text;
  const std::string all = table.text();
  int line = 0;
  for (std::size_t at = 0; at < all.size(); ++line) {
    const std::size_t end = all.find('\n', at);
    if (line != 1) text += "  " + all.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

// Returns "−19 to −9 %" of an interval of savings in percent.
std::string interval_text(double saved_low_pct, double saved_high_pct) {
  const auto signed_text = [](double pct) {
    const std::string digits = fmt::format("{:.0f}", std::abs(pct));
    return digits == "0" ? digits : (pct < 0 ? "−" : "+") + digits;
  };
  return signed_text(-saved_high_pct) + " to " + signed_text(-saved_low_pct) + " %";
}

std::string memory_text(std::int64_t delta_bytes) {
  const double GiB = double(delta_bytes) / double(1 << 30);
  return std::abs(GiB) < 0.05 ? "" : fmt::format("{}{:.1f} GiB", GiB < 0 ? "−" : "+", std::abs(GiB));
}

std::string alone_text(const Modes& m, std::size_t columns) {
  std::vector<const predict::PredictedMode*> rows;
  for (std::size_t i = 1; i < m.modes.size(); ++i)
    if (m.modes[i].advice.verdict() != Verdict::off) rows.push_back(&m.modes[i]);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->step_ms < b->step_ms; });
  Table table({"overlap", "step", "change", "interval", "exposed", "memory", ""});
  std::map<std::string, std::vector<std::string>> undecided;  // [what decides]
  for (const predict::PredictedMode* mode : rows) {
    const Advice& advice = mode->advice;
    const bool is_scenario = mode->mode == "scenario";
    table.add_row({is_scenario ? "scenario, all that are on" : mode->mode, short_time(mode->step_ms),
                   change_text(-advice.saved_pct() / 100), interval_text(advice.low_pct, advice.high_pct),
                   short_time(mode->breakdown.exposed), memory_text(advice.memory_delta_bytes()),
                   is_scenario ? "" : name_of(advice.verdict())});
    if (!is_scenario && advice.verdict() == Verdict::benchmark_first && !advice.decides.empty())
      undecided[advice.decides].push_back(mode->mode);
  }
  std::string text = fmt::format("What each overlap is worth, alone, against a step with none: {}\n\n",
                                 short_time(m.modes.front().step_ms)) +
                     indented(table);
  for (const auto& [decides, modes] : undecided)
    text += wrapped(fmt::format("  benchmark first {}: {}",
                                modes.size() == 1 ? modes.front() : fmt::format("these {}", modes.size()), decides),
                    columns, 4);
  if (const auto off = std::count_if(m.modes.begin() + 1, m.modes.end(),
                                     [](const auto& mode) { return mode.advice.verdict() == Verdict::off; }) +
                       std::ssize(m.left_out);
      off > 0)
    text += fmt::format("  {} more cannot act here: --verbose says why\n", off);
  return text;
}

// Returns what each switch that is on saves in addition to all others, the largest first.
std::string from_here_text(std::vector<predict::KnobOff> knobs, double step_ms) {
  std::stable_sort(knobs.begin(), knobs.end(), [](const auto& a, const auto& b) { return a.saved_ms > b.saved_ms; });
  Table table({"off from here", "change", "also off"});
  for (const predict::KnobOff& knob : knobs) {
    std::string also;
    for (const std::string& other : knob.also_off) also += (also.empty() ? "" : ", ") + other;
    table.add_row({knob.knob, change_text(knob.saved_ms / step_ms), also});
  }
  return fmt::format("\nFrom here, one switch changed; now {}\n\n", short_time(step_ms)) + indented(table);
}

std::string precision_text(const std::vector<predict::RecipeStep>& recipes, double step_ms) {
  Table table({"matrix multiplies in", "step", "change", "memory", ""});
  for (const predict::RecipeStep& recipe : recipes)
    if (recipe.step_ms > 0 && !recipe.is_scenario)
      table.add_row({recipe.recipe, short_time(recipe.step_ms), change_text(recipe.step_ms / step_ms - 1),
                     fmt::format("{:.1f} GiB", double(recipe.peak_bytes) / double(1 << 30)), name_of(recipe.fit)});
  return table.rows() == 0 ? "" : "\nOther precisions; check the loss\n\n" + indented(table);
}

}  // namespace

std::string modes_text(const Modes& m, double step_ms, std::size_t columns) {
  std::string text = alone_text(m, columns);
  if (const std::string remedies = predict::remedies_text(m.remedies); !remedies.empty())
    text += "\n" + remedies + "\n";
  if (!m.knobs.empty()) text += from_here_text(m.knobs, step_ms);
  return text + precision_text(m.recipes, step_ms);
}

}  // namespace stretto::ask
