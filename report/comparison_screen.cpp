#include "report/comparison_screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/printable.hpp"
#include "report/table.hpp"
#include "report/units.hpp"

namespace stretto {
namespace {

constexpr std::size_t kRows = 9, kNotes = 2, kBest = 3;

std::string one_line(const std::string& wrapped_text) { return wrapped_text.substr(0, wrapped_text.size() - 1); }

std::string headline(const Comparison& comparison) {
  std::string text = fmt::format("Predictions are {:.1f} % off, worst {:.1f} %", comparison.mean_abs_error_pct(),
                                 comparison.worst_abs_error_pct());
  if (const double noise = comparison.noise_floor().pct; !std::isnan(noise))
    text += fmt::format("; noise of this machine: {:.1f} %", noise);
  if (const Comparison::Ranking ranking = comparison.ranking(); ranking.pairs > 0)
    text += fmt::format(". {} of {} pairs ranked right", ranking.right, ranking.pairs);
  return text;
}

Table steps_table(const Comparison& comparison) {
  Table table({"ranks", "mode", "predicted", "measured", "error", "saves: predicted", "measured", ""});
  for (std::size_t i = 0; i < std::min(kRows, comparison.rows.size()); ++i) {
    const ComparisonRow& row = comparison.rows[i];
    const bool is_plain = &row == &comparison.plain_of(row);
    const std::optional<bool> beyond = comparison.is_beyond_noise(row);
    table.add_row({std::to_string(row.ranks), printable(row.mode), short_time(row.predicted_ms),
                   short_time(row.measured_median_ms()),
                   comparison.is_busy() ? "-" : change_text(row.error_pct() / 100),
                   is_plain ? "" : short_time(comparison.saved_predicted_ms(row)),
                   is_plain ? "" : short_time(comparison.saved_measured_ms(row)),
                   comparison.is_busy() || !beyond ? ""
                   : *beyond                       ? "beyond noise"
                                                   : "within noise"});
  }
  return table;
}

// Returns a line for each number of ranks whose best mode is beyond the noise.
std::string best_modes(const Comparison& comparison) {
  std::map<std::int64_t, const ComparisonRow*> best;
  for (const ComparisonRow& row : comparison.rows) {
    if (comparison.is_beyond_noise(row) != true || comparison.saved_measured_ms(row) <= 0) continue;
    const ComparisonRow*& of = best[row.ranks];
    if (of == nullptr || row.measured_median_ms() < of->measured_median_ms()) of = &row;
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [ranks, row] : best)
    if (++shown <= kBest)
      text += fmt::format("on {} ranks use {}: steps {:.0f} % shorter\n", ranks, printable(row->mode),
                          100 * comparison.saved_measured_ms(*row) / comparison.plain_of(*row).measured_median_ms());
  return text.empty() ? "no mode saves more than the noise of this machine\n" : text;
}

}  // namespace

std::string comparison_screen(const Comparison& comparison, const Ink& ink) {
  const auto columns = static_cast<std::size_t>(ink.columns);
  std::string text;
  if (comparison.is_busy()) {
    text = ink.bold("This machine is busy: measured steps are not comparable, and nothing below ranks modes.") + "\n" +
           ink.warning(one_line(wrapped(comparison_remarks(comparison).front(), columns, 0))) + "\n\n";
  } else {
    text = ink.bold(one_line(wrapped(headline(comparison), columns, 0))) + "\n\n";
  }
  text += steps_table(comparison).text();
  if (comparison.rows.size() > kRows) text += fmt::format("{} more rows: --verbose\n", comparison.rows.size() - kRows);
  if (!comparison.is_busy()) text += "\n" + best_modes(comparison);
  const std::size_t notes = std::min(kNotes, comparison.notes.size());
  for (std::size_t i = 0; i < notes; ++i) text += wrapped("note: " + printable(comparison.notes[i]), columns, 6);
  if (const std::size_t more = comparison.notes.size() - notes; more > 0)
    text += fmt::format("{} more note{}: --verbose\n", more, more == 1 ? "" : "s");
  return text + "\n" +
         ink.faint("--verbose: exposed time, what explains each difference, advice   --html FILE: timelines") + "\n";
}

}  // namespace stretto
