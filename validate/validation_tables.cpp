#include "validate/validation_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace stretto::validate {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }
std::string count_of(std::size_t count) { return fmt::format("{}", count); }
std::string errors_text(const ValidatedGroup::Errors& errors) {
  return fmt::format("{:.1f} %, {:+.1f}, {:+.1f}", 100 * errors.mean_abs, 100 * errors.bias, 100 * errors.worst);
}

// Returns the first entries of a list of shares, largest first: "tp 40 %, compute 30 %".
std::string largest(const std::vector<std::pair<std::string, double>>& shares, int decimals) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, shares.size()); ++i)
    text += fmt::format("{}{} {:.{}f} %", i == 0 ? "" : ", ", shares[i].first, 100 * shares[i].second, decimals);
  return text;
}

// Returns "0.4571 to 0.5210: forced routing 0.4571, natural routing 0.5210".
std::string readings_text(const ValidatedStep& step) {
  if (step.readings_s.empty()) return "";
  std::string text = fmt::format("{:.4f} to {:.4f}", step.least_s(), step.most_s());
  for (std::size_t i = 0; i < step.readings_s.size(); ++i)
    text += fmt::format("{} {} {:.4f}", i == 0 ? ":" : ";", step.published.readings[i].what, step.readings_s[i]);
  return text;
}

bool has_left_out(const Validation& validation) {
  return std::any_of(validation.groups.begin(), validation.groups.end(),
                     [](const ValidatedGroup& group) { return !group.left_out.empty(); });
}

}  // namespace

Table table_of_groups(const Validation& validation) {
  const bool left_out = has_left_out(validation);
  std::vector<std::string> headers = {"group",   "rows",           "fitted constants", "shipped: mean, bias, worst",
                                      "sourced", "nothing fitted", "constant MFU"};
  if (left_out) headers.insert(headers.begin() + 4, "left out");
  if (validation.options.intervals) headers.insert(headers.end(), {"inside 80 %", "± mean"});
  Table table(headers);
  for (const ValidatedGroup& group : validation.groups) {
    std::vector<std::string> cells = {group.name, count_of(group.steps.size()),
                                      fmt::format("{}", group.fitted_constants), errors_text(group.errors[2])};
    if (left_out) cells.push_back(group.left_out.empty() ? "–" : errors_text(group.left_out_errors));
    cells.insert(cells.end(), {errors_text(group.errors[1]), errors_text(group.errors[0]),
                               group.constant_mfu.mean_abs > 0 ? errors_text(group.constant_mfu) : "–"});
    if (validation.options.intervals)
      cells.insert(cells.end(), {fmt::format("{:.0f} %", 100 * group.inside), percent(group.half_width)});
    table.add_row(std::move(cells));
  }
  return table;
}

Table table_of_rows(const Validation& validation) {
  std::vector<std::string> headers = {"row",   "model",   "GPUs",           "measured s", "predicted s",
                                      "error", "sourced", "nothing fitted", "mostly",     "assumed"};
  if (validation.options.intervals) headers.insert(headers.begin() + 6, {"80 % interval s", "inside"});
  const bool has_memory = std::any_of(validation.groups.begin(), validation.groups.end(),
                                      [](const ValidatedGroup& group) { return group.memory_rows > 0; });
  if (has_memory) headers.insert(headers.end() - 2, {"peak GiB", "predicted", "error"});
  const bool has_readings = std::any_of(validation.steps.begin(), validation.steps.end(),
                                        [](const ValidatedStep& step) { return !step.readings_s.empty(); });
  if (has_readings) headers.emplace_back("left open s");
  Table table(headers);
  for (const ValidatedStep& step : validation.steps) {
    const PublishedStep& row = step.published;
    if (!row.skipped.empty()) continue;
    std::string assumed;
    for (const std::string& assumption : row.assumed()) assumed += (assumed.empty() ? "" : "; ") + assumption;
    std::vector<std::string> cells = {row.id,
                                      row.model,
                                      fmt::format("{}", row.gpus),
                                      fmt::format("{:.4f}", row.step_s),
                                      fmt::format("{:.4f}", step.predicted(Fitted::shipped)),
                                      signed_percent(step.error(Fitted::shipped)),
                                      signed_percent(step.error(Fitted::sourced)),
                                      signed_percent(step.error(Fitted::nothing)),
                                      largest(step.limits, 0),
                                      assumed};
    if (validation.options.intervals)
      cells.insert(cells.begin() + 6,
                   {fmt::format("{:.4f} to {:.4f}", step.low_s(), step.high_s()), step.is_inside() ? "yes" : "no"});
    if (const bool has_peak = row.hbm_GiB > 0; has_memory)
      cells.insert(cells.end() - 2, {has_peak ? fmt::format("{:.1f} {}", row.hbm_GiB, row.hbm_of) : "",
                                     has_peak ? fmt::format("{:.1f}", double(step.peak_bytes) / double(1 << 30)) : "",
                                     has_peak ? signed_percent(step.memory_error()) : ""});
    if (has_readings) cells.push_back(readings_text(step));
    table.add_row(std::move(cells));
  }
  return table;
}

Table table_of_memory(const Validation& validation) {
  Table table({"group", "published peaks", "predicted: mean, bias, worst", "predicted not to fit", "by, GiB"});
  const double GiB = double(1 << 30);
  for (const ValidatedGroup& group : validation.groups) {
    if (group.memory_rows == 0 && group.over == 0) continue;
    table.add_row({group.name, count_of(group.memory_rows), group.memory_rows > 0 ? errors_text(group.memory) : "–",
                   fmt::format("{} of {}", group.over, group.steps.size()), ""});
    for (const std::size_t s : group.steps) {
      const ValidatedStep& step = validation.steps[s];
      if (step.is_wrongly_over())
        table.add_row({"", "", "", step.published.id, fmt::format("{:.1f}", double(step.over_bytes) / GiB)});
    }
  }
  return table;
}

Table table_of_communication(const Validation& validation) {
  Table table({"row", "communication s", "predicted s", "hidden s", "predicted s", "hidden share", "predicted"});
  const auto seconds = [](double time_s) { return time_s > 0 ? fmt::format("{:.4f}", time_s) : "–"; };
  for (const ValidatedStep& step : validation.steps) {
    const PublishedStep& row = step.published;
    if (!row.skipped.empty() || (row.active_s == 0 && row.hidden_s == 0)) continue;
    table.add_row({row.id, seconds(row.active_s), seconds(step.active_s), seconds(row.hidden_s), seconds(step.hidden_s),
                   row.active_s > 0 && row.hidden_s > 0 ? percent(row.hidden_s / row.active_s) : "–",
                   step.active_s > 0 ? percent(step.hidden_s / step.active_s) : "–"});
  }
  return table;
}

Table table_of_pairs(const Validation& validation) {
  Table table({"group", "what differs", "pairs", "sign right", "median error of ratio", "within 4 points"});
  for (const ValidatedGroup& group : validation.groups)
    for (const PairKind& kind : group.pairs)
      table.add_row({group.name, kind.what, count_of(kind.pairs),
                     kind.apart == 0 ? "–" : fmt::format("{} of {}", kind.right_sign, kind.apart),
                     percent(kind.median_error), fmt::format("{:.0f} %", 100 * kind.within)});
  return table;
}

Table table_of_rankings(const Validation& validation) {
  Table table(
      {"group", "choices", "best picked", "within 3 %", "mean regret", "worst", "random layout: mean", "worst"});
  for (const ValidatedGroup& group : validation.groups) {
    const Ranking& ranking = group.ranking;
    if (ranking.choices == 0) continue;
    table.add_row({group.name, count_of(ranking.choices), count_of(ranking.best), count_of(ranking.good),
                   percent(ranking.mean), percent(ranking.worst), percent(ranking.random_mean),
                   percent(ranking.random_worst)});
  }
  return table;
}

Table table_of_intervals(const Validation& validation) {
  Table table({"group", "inside 80 %", "± mean", "mostly because of"});
  if (!validation.options.intervals) return table;
  std::size_t rows = 0;
  double inside = 0;
  for (const ValidatedGroup& group : validation.groups) {
    rows += group.steps.size();
    inside += group.inside * double(group.steps.size());
    table.add_row({group.name, fmt::format("{:.0f} %", 100 * group.inside), percent(group.half_width),
                   largest(group.uncertain, 1)});
  }
  std::size_t with_experts = 0, of_them_inside = 0;
  for (const ValidatedStep& step : validation.steps)
    if (step.published.skipped.empty() && step.scenario.model.experts.any()) {
      ++with_experts;
      of_them_inside += step.is_inside() ? 1 : 0;
    }
  if (with_experts > 0)
    table.add_row(
        {"rows with experts", fmt::format("{:.0f} %", 100 * double(of_them_inside) / double(with_experts)), "", ""});
  if (rows > 0) table.add_row({"all rows", fmt::format("{:.0f} %", 100 * inside / double(rows)), "", ""});
  return table;
}

Table table_of_left_out(const Validation& validation) {
  Table table({"group", "without hidden size", "rows", "fitted to", "constants, shipped → fitted without it"});
  for (const ValidatedGroup& group : validation.groups)
    for (const LeftOut& left_out : group.left_out) {
      std::string constants;
      for (const Refitted& constant : left_out.constants)
        constants += fmt::format("{}{} {:.3g} → {:.3g}", constants.empty() ? "" : ", ", constant.name, constant.shipped,
                                 constant.value);
      table.add_row({group.name, fmt::format("{}", left_out.hidden_size), count_of(left_out.steps),
                     count_of(left_out.fitted_to), constants.empty() ? "none" : constants});
    }
  return table;
}

std::vector<std::string> assumed_lines(const Validation& validation) {
  std::map<std::string, int> rows;
  for (const ValidatedStep& step : validation.steps) {
    const PublishedStep& row = step.published;
    if (!row.skipped.empty()) continue;
    for (const std::string& assumption : std::set<std::string>(row.assumptions.begin(), row.assumptions.end()))
      ++rows[assumption];
    for (const auto& [column, cell] : row.unread) ++rows[fmt::format("{} not read", column)];
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [what, count] : rows) sorted.emplace_back(-count, what);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> lines;
  for (const auto& [count, what] : sorted) lines.push_back(fmt::format("assumed in {}: {}", -count, what));
  return lines;
}

std::vector<std::string> skipped_lines(const Validation& validation) {
  std::map<std::string, int> reasons;
  for (const ValidatedStep& step : validation.steps)
    if (!step.published.skipped.empty()) ++reasons[step.published.skipped];
  std::vector<std::string> lines;
  for (const auto& [why, count] : reasons) lines.push_back(fmt::format("skipped {}: {}", count, why));
  return lines;
}

}  // namespace stretto::validate
