#include "report/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/values_of.hpp"
#include "report/units.hpp"

namespace stretto {
namespace {

std::string delta_text(std::int64_t bytes) {
  if (bytes == 0) return "same";
  return (bytes > 0 ? "+" : "−") + size_text(double(std::abs(bytes)));
}

}  // namespace

const char* name_of(Verdict verdict) { return name_in({"use", "avoid", "benchmark first", "off"}, verdict); }

Verdict Advice::verdict() const {
  if (!off_because.empty()) return Verdict::off;
  if (plain.fits && !step.fits) return Verdict::avoid;
  const double sure_pct = std::max(unsure_pct, kSmall_pct);
  if (saved_pct() > sure_pct) return Verdict::use;
  return saved_pct() < -sure_pct ? Verdict::avoid : Verdict::benchmark_first;
}

std::string Advice::why() const {
  if (!off_because.empty()) return off_because;
  std::string text;
  if (plain.fits && !step.fits) text += "does not fit, where the plain schedule does; ";
  text += fmt::format("{} {:.1f} ± {:.1f} %", saved_pct() < 0 ? "costs" : "saves", std::abs(saved_pct()), unsure_pct);
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
  // With an unknown noise floor no two steps can be told apart.
  const bool is_known = floor != comparison.noise.end() && !std::isnan(floor->second.pct);
  return {.mode = row.mode,
          .ranks = row.ranks,
          .step = step_of(row),
          .plain = step_of(comparison.plain_of(row)),
          .unsure_pct = is_known ? floor->second.pct : 100,
          .is_measured = true,
          .off_because = {},
          .on_gpu = comparison.on_gpu,
          .because = {}};
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
          {"unsure_pct", a.unsure_pct},
          {"sent_bytes", a.step.traffic.sent_bytes},
          {"hidden_bytes", a.step.traffic.hidden_bytes},
          {"ctas", a.step.traffic.ctas > 0 ? nlohmann::json(a.step.traffic.ctas) : nlohmann::json(nullptr)},
          {"memory_delta_bytes", a.memory_delta_bytes()}};
}

}  // namespace stretto
