#include "ask/side_by_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/scenario/keys.hpp"
#include "report/budget.hpp"
#include "report/table.hpp"
#include "report/units.hpp"

namespace stretto::ask {
namespace {

using Json = nlohmann::json;

double us_per_token(const SimulateAnswer& answer) { return 1e6 / answer.step.prediction.throughput.tokens_per_s; }

bool is_of_one_kind(const Asked& a, const Asked& b) {
  return a.platform->accelerator && b.platform->accelerator && a.platform->name == b.platform->name &&
         a.scenario.framework.name == b.scenario.framework.name;
}

// Returns the gain with the intervals of both steps as independent ones.
predict::Gain independent_gain(const SimulateAnswer& first, const SimulateAnswer& other, double ratio) {
  predict::Gain gain;
  gain.saved = gain.low = gain.high = 1 - ratio;
  if (!first.interval || !other.interval) return gain;
  const auto ends = [](const SimulateAnswer& answer) {
    const double step_ms = answer.step.prediction.step_ms;
    return std::pair(std::log(step_ms / answer.interval->low_ms), std::log(answer.interval->high_ms / step_ms));
  };
  const auto [down, up] = ends(first);
  const auto [other_down, other_up] = ends(other);
  gain.low = 1 - ratio * std::exp(std::hypot(other_up, down));
  gain.high = 1 - ratio * std::exp(-std::hypot(other_down, up));
  return gain;
}

predict::Gain gain_of(const SideBySide& steps, std::size_t at) {
  const SimulateAnswer &first = steps.answers.front(), &other = steps.answers[at];
  const double ratio = us_per_token(other) / us_per_token(first);
  if (!is_of_one_kind(steps.asked.front(), steps.asked[at])) return independent_gain(first, other, ratio);
  const predict::Doubts doubts(steps.asked.front().scenario, *steps.asked.front().platform);
  // Logarithms per token, so that the steps may have different batches.
  const auto logs_of = [&](const Asked& asked, const SimulateAnswer& answer) {
    const Prediction& p = answer.step.prediction;
    std::vector<double> logs = doubts.logs(predict::QuickStep(asked.scenario), p.step_ms * 1e-3);
    for (double& log : logs) log -= std::log(p.step_ms * 1e-3 * p.throughput.tokens_per_s);
    return logs;
  };
  return doubts.gain(logs_of(steps.asked.front(), first), logs_of(steps.asked[at], other));
}

std::string text_of_value(const KeyValue& value) {
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<DifferentKey> different_keys(const std::vector<Asked>& asked) {
  std::vector<DifferentKey> found;
  const auto add = [&](const std::string& key, const auto& value_of_one) {
    DifferentKey one{key, {}};
    for (const Asked& each : asked) one.values.push_back(value_of_one(each));
    if (std::set(one.values.begin(), one.values.end()).size() > 1) found.push_back(std::move(one));
  };
  add("platform", [](const Asked& one) { return one.platform->name; });
  add("profile", [](const Asked& one) { return one.scenario.framework.name; });
  for (const std::string_view section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      add(key.full_name(), [&](const Asked& one) { return text_of_value(acting_value_of(key, one.scenario)); });
  return found;
}

// Returns the names of the steps: those of the scenarios, numbered where several are equal.
std::vector<std::string> names_of(const SideBySide& steps) {
  std::vector<std::string> names;
  for (const SimulateAnswer& answer : steps.answers) names.push_back(answer.step.prediction.scenario);
  if (std::set(names.begin(), names.end()).size() < names.size())
    for (std::size_t i = 0; i < names.size(); ++i) names[i] += fmt::format(" ({})", i + 1);
  return names;
}

Table figures_table(const SideBySide& steps, const std::vector<std::string>& names) {
  std::vector<std::string> head = {"step"};
  head.insert(head.end(), names.begin(), names.end());
  Table table(head);
  const double GiB = double(1 << 30);
  const auto row = [&](const char* what, const auto& text) {
    std::vector<std::string> cells = {what};
    for (std::size_t i = 0; i < names.size(); ++i) cells.push_back(text(i));
    table.add_row(std::move(cells));
  };
  const auto of = [&](std::size_t i) -> const Prediction& { return steps.answers[i].step.prediction; };
  row("time", [&](std::size_t i) { return short_time(of(i).step_ms); });
  row("80 % interval", [&](std::size_t i) {
    const auto& interval = steps.answers[i].interval;
    return interval ? short_time(interval->low_ms) + " – " + short_time(interval->high_ms) : std::string();
  });
  row("tokens/s a GPU", [&](std::size_t i) { return three_digits(of(i).throughput.tokens_per_s_per_device); });
  row("time a token", [&](std::size_t i) { return i == 0 ? "" : change_text(-steps.gains[i].saved); });
  row("its interval", [&](std::size_t i) {
    const predict::Gain& gain = steps.gains[i];
    return gain.low == gain.high ? "" : change_text(-gain.high) + " to " + change_text(-gain.low);
  });
  row("MFU", [&](std::size_t i) { return of(i).throughput.mfu ? percent_text(*of(i).throughput.mfu) : ""; });
  row("memory", [&](std::size_t i) {
    const DeviceMemory& memory = of(i).memory;
    return fmt::format("{} of {} GiB", three_digits(double(memory.predicted_bytes()) / GiB),
                       three_digits(double(memory.device_bytes) / GiB));
  });
  row("", [&](std::size_t i) { return name_of(of(i).memory.fit()); });
  row("GPUs", [&](std::size_t i) { return std::to_string(of(i).devices); });
  return table;
}

// Returns the parts of each step's time per token relative to the first step's, so that the differences of parts add up
// to the difference of steps.
Table causes_table(const SideBySide& steps, const std::vector<std::string>& names) {
  std::vector<std::string> head = {"where the difference comes from"};
  head.insert(head.end(), names.begin() + 1, names.end());
  Table table(head);
  const auto tokens = [](const SimulateAnswer& answer) {
    return answer.step.prediction.step_ms * answer.step.prediction.throughput.tokens_per_s;
  };
  const auto part_of = [&](const SimulateAnswer& answer, const std::string& what) {
    for (const BudgetPart& part : budget_of(answer.step.prediction))
      if (part.what == what) return part.ms / tokens(answer);
    return 0.0;
  };
  std::vector<std::string> parts;
  for (const SimulateAnswer& answer : steps.answers)
    for (const BudgetPart& part : budget_of(answer.step.prediction))
      if (std::find(parts.begin(), parts.end(), part.what) == parts.end()) parts.push_back(part.what);
  const double first_ms = steps.answers.front().step.prediction.step_ms / tokens(steps.answers.front());
  for (const std::string& part : parts) {
    std::vector<std::string> cells = {part};
    for (std::size_t i = 1; i < steps.answers.size(); ++i)
      cells.push_back(change_text((part_of(steps.answers[i], part) - part_of(steps.answers.front(), part)) / first_ms));
    if (std::any_of(cells.begin() + 1, cells.end(), [](const std::string& cell) { return cell != "0"; }))
      table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

SideBySide side_by_side(std::vector<Asked> asked, const SimulateOptions& options) {
  SideBySide steps;
  steps.asked = std::move(asked);
  for (Asked& one : steps.asked) steps.answers.push_back(simulate(one, options));
  for (std::size_t i = 0; i < steps.answers.size(); ++i)
    steps.gains.push_back(i == 0 ? predict::Gain{} : gain_of(steps, i));
  steps.differ = different_keys(steps.asked);
  return steps;
}

std::string text_of(const SideBySide& steps, std::size_t columns) {
  const std::vector<std::string> names = names_of(steps);
  std::string text = figures_table(steps, names).text();
  if (const Table causes = causes_table(steps, names); causes.rows() > 0) text += "\n" + causes.text();
  constexpr std::size_t kShown = 24;
  if (!steps.differ.empty()) {
    std::vector<std::string> head = {"what differs"};
    head.insert(head.end(), names.begin(), names.end());
    Table table(head);
    for (const DifferentKey& one : steps.differ) {
      if (table.rows() == kShown) break;
      std::vector<std::string> cells = {one.key};
      cells.insert(cells.end(), one.values.begin(), one.values.end());
      table.add_row(std::move(cells));
    }
    text += "\n" + table.text();
    if (steps.differ.size() > kShown)
      text += fmt::format("and {} more settings: --json\n", steps.differ.size() - kShown);
  }
  for (std::size_t i = 1; i < steps.gains.size(); ++i)
    if (const predict::Gain& gain = steps.gains[i]; gain.low < 0 && gain.high > 0)
      text += wrapped(fmt::format("note: {} and {} cannot be ranked: the interval of their difference has both signs",
                                  names.front(), names[i]),
                      columns, 6);
  return text;
}

Json json_of(const SideBySide& steps) {
  Json list = Json::array(), changes = Json::array(), differ = Json::array();
  for (const SimulateAnswer& answer : steps.answers) list.push_back(json_of(answer));
  for (const predict::Gain& gain : steps.gains)
    changes.push_back(
        {{"saved_pct", 100 * gain.saved}, {"saved_low_pct", 100 * gain.low}, {"saved_high_pct", 100 * gain.high}});
  for (const DifferentKey& one : steps.differ) differ.push_back({{"key", one.key}, {"values", one.values}});
  return {{"steps", std::move(list)}, {"changes", std::move(changes)}, {"differ", std::move(differ)}};
}

}  // namespace stretto::ask
