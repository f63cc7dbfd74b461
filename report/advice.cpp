#include "report/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/values_of.hpp"
#include "report/units.hpp"

namespace stretto {
namespace {

double half_width_pct(const Advice& a) { return (a.high_pct - a.low_pct) / 2; }

std::string delta_text(std::int64_t bytes) {
  if (bytes == 0) return "same";
  return (bytes > 0 ? "+" : "−") + size_text(double(std::abs(bytes)));
}

// Returns "saves 12 to 31 % (21.3 expected): your release's host decides; …", or where nothing is known to decide
// "saves 10.0 ± 2.0 %".
std::string saving_text(const Advice& a) {
  const bool costs = a.saved_pct() < 0;
  const char* verb = costs ? "costs" : "saves";
  const double expected = std::abs(a.saved_pct());
  if (a.decides.empty()) return fmt::format("{} {:.1f} ± {:.1f} %", verb, expected, half_width_pct(a));
  const auto [low, high] = costs ? std::pair(-a.high_pct, -a.low_pct) : std::pair(a.low_pct, a.high_pct);
  return fmt::format("{} {:.0f} to {:.0f} % ({:.1f} expected): {}", verb, low, high, expected, a.decides);
}

}  // namespace

const char* name_of(Verdict verdict) { return name_in({"use", "avoid", "benchmark first", "off"}, verdict); }

Verdict verdict_of(double saved, double low, double high, double least) {
  if (std::abs(saved) <= least) return Verdict::benchmark_first;
  if (low > 0) return Verdict::use;
  return high < 0 ? Verdict::avoid : Verdict::benchmark_first;
}

Verdict Advice::verdict() const {
  if (!off_because.empty()) return Verdict::off;
  if (plain.fits && !step.fits) return Verdict::avoid;
  return verdict_of(saved_pct(), low_pct, high_pct, least_pct);
}

std::string Advice::why() const {
  if (!off_because.empty()) return off_because;
  std::string text;
  if (plain.fits && !step.fits) text += "does not fit, where the plain schedule does; ";
  text += saving_text(*this);
  if (step.traffic.sent_bytes > 0)
    text += fmt::format("; hidden {} of {} (plain {})", size_text(step.traffic.hidden_bytes),
                        size_text(step.traffic.sent_bytes), size_text(plain.traffic.hidden_bytes));
  const double slower_ms = step.breakdown.compute - plain.breakdown.compute;
  if (std::abs(slower_ms) > 1e-3 * plain.breakdown.compute)
    text += fmt::format("; compute {:+.1f} %", 100 * slower_ms / plain.breakdown.compute);
  if (step.traffic.ctas > 0) text += fmt::format("; up to {} {} taken", step.traffic.ctas, on_gpu ? "SMs" : "cores");
  if (!because.empty()) text += "; " + because;
  return text;
}

Advice measured_advice(const Comparison& comparison, const ComparisonRow& row) {
  const auto step_of = [](const ComparisonRow& r) {
    return ModeStep{r.measured_median_ms(), r.measured, r.traffic, r.peak_bytes, true};
  };
  const auto floor = comparison.noise.find(row.ranks);
  // With an unknown noise floor no two steps can be distinguished.
  const bool is_known = floor != comparison.noise.end() && !std::isnan(floor->second.pct);
  Advice advice;
  advice.mode = row.mode;
  advice.ranks = row.ranks;
  advice.step = step_of(row);
  advice.plain = step_of(comparison.plain_of(row));
  advice.set_unsure(is_known ? floor->second.pct : 100);
  advice.is_measured = true;
  advice.on_gpu = comparison.on_gpu;
  return advice;
}

Table advice_table(const std::vector<Advice>& advice) {
  Table table({"ranks", "mode", "advice", "by", "memory", "why"});
  for (const Advice& a : advice)
    table.add_row({std::to_string(a.ranks), a.mode, name_of(a.verdict()), a.is_measured ? "measured" : "expected",
                   a.verdict() == Verdict::off ? "" : delta_text(a.memory_delta_bytes()), a.why()});
  return table;
}

nlohmann::json advice_json(const Advice& a) {
  return {{"verdict", name_of(a.verdict())},
          {"why", a.why()},
          {"basis", a.is_measured ? "measured" : "expected"},
          {"saved_pct", a.saved_pct()},
          {"saved_low_pct", a.low_pct},
          {"saved_high_pct", a.high_pct},
          {"unsure_pct", half_width_pct(a)},
          {"decides", a.decides.empty() ? nlohmann::json(nullptr) : nlohmann::json(a.decides)},
          {"sent_bytes", a.step.traffic.sent_bytes},
          {"hidden_bytes", a.step.traffic.hidden_bytes},
          {"ctas", a.step.traffic.ctas > 0 ? nlohmann::json(a.step.traffic.ctas) : nlohmann::json(nullptr)},
          {"memory_delta_bytes", a.memory_delta_bytes()}};
}

}  // namespace stretto
