#include "sweep/near.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "model/scenario/keys.hpp"
#include "predict/quick_step.hpp"
#include "report/advice.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"
#include "sweep/evaluate.hpp"

namespace stretto::sweep {
namespace {

// Returns the keys whose change may make a step faster and leaves what is trained alone.
std::vector<std::string> changeable_keys(const Scenario& scenario) {
  std::vector<std::string> keys = {"parallel.tensor_model_parallel_size",
                                   "parallel.pipeline_model_parallel_size",
                                   "parallel.virtual_pipeline_model_parallel_size",
                                   "parallel.context_parallel_size",
                                   "training.micro_batch_size",
                                   "training.recompute_granularity",
                                   "parallel.sequence_parallel",
                                   "parallel.data_parallel_sharding_strategy",
                                   "parallel.pipeline_schedule"};
  if (scenario.model.experts.any())
    keys.insert(keys.end(), {"parallel.expert_model_parallel_size", "parallel.expert_tensor_parallel_size"});
  Scenario copy = scenario;
  for (const ScenarioKey& key : scenario_keys_of("overlap"))
    if (key.field != nullptr && std::holds_alternative<bool*>(key.field(copy))) keys.push_back(key.full_name());
  return keys;
}

std::string text_of(const KeyValue& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns the values next to the present one in the list of legal values; of words and switches all others.
std::vector<std::string> other_values(const std::string& key, const std::string& now, const Scenario& scenario,
                                      const sim::Platform& platform) {
  const Space space = read_space(parse_toml("", "near").section("sweep"), {key + "=legal"}, scenario, platform);
  std::vector<std::string> others;
  for (const Axis& axis : space.axes) {
    if (axis.key != key) continue;
    const std::vector<std::string>& values = axis.values;
    const bool is_number = !now.empty() && now.find_first_not_of("0123456789") == std::string::npos;
    const auto at = std::find(values.begin(), values.end(), now);
    if (!is_number || at == values.end()) {
      std::copy_if(values.begin(), values.end(), std::back_inserter(others), [&](const auto& v) { return v != now; });
      continue;
    }
    if (at != values.begin()) others.push_back(*std::prev(at));
    if (std::next(at) != values.end()) others.push_back(*std::next(at));
  }
  return others;
}

// Gives each change of an overlap mode the interval of its gain.
void add_doubts(std::vector<SingleChange>& changes, const Scenario& scenario, const sim::Platform& platform,
                const std::function<Scenario(const std::vector<std::string>& set)>& read) {
  const auto is_of_mode = [](const SingleChange& change) { return change.set.front().starts_with("overlap."); };
  if (std::none_of(changes.begin(), changes.end(), is_of_mode)) return;
  const predict::Doubts doubts(scenario, platform);
  const predict::QuickStep own(scenario);
  const std::vector<double> own_logs = doubts.logs(own, own.step_s(platform, scenario.framework));
  parallel_each(std::ssize(changes), [&](std::int64_t at) {
    SingleChange& change = changes[static_cast<std::size_t>(at)];
    if (!is_of_mode(change)) return;
    change.gain = doubts.gain(own_logs, doubts.logs(predict::QuickStep(read(change.set)), change.step_ms * 1e-3));
  });
}

}  // namespace

std::vector<SingleChange> single_changes(const Scenario& scenario, const sim::Platform& platform) {
  std::vector<SingleChange> tried;
  for (const std::string& key : changeable_keys(scenario)) {
    const std::size_t dot = key.find('.');
    const ScenarioKey& row = scenario_key(key.substr(0, dot), key.substr(dot + 1));
    const std::string now = text_of(value_of(row, scenario));
    for (const std::string& value : other_values(key, now, scenario, platform)) {
      const auto settings = settings_of({{{key, {value}}}}, {value}, scenario);
      if (settings) tried.push_back({key, fmt::format("{} {} -> {}", row.name, now, value), settings->set, 0, {}});
    }
  }
  return tried;
}

std::vector<SingleChange> faster_changes(const Scenario& scenario, const sim::Platform& platform, double step_ms,
                                         const std::function<Scenario(const std::vector<std::string>& set)>& read,
                                         const std::function<bool(const std::string& key)>& leaves_out) {
  if (!platform.accelerator) return {};
  std::vector<SingleChange> tried = single_changes(scenario, platform);
  std::erase_if(tried, [&](const SingleChange& change) { return leaves_out && leaves_out(change.key); });
  std::exception_ptr problem;
  std::mutex mutex;
  Families families;
  parallel_each(std::ssize(tried), [&](std::int64_t at) {
    SingleChange& change = tried[static_cast<std::size_t>(at)];
    try {
      Point point;
      point.set = change.set;
      const Scenario changed = read(change.set);
      look_at(point, changed, platform, families);
      if (point.status == Status::open) decide(point, changed, platform, families, step_ms);
      if (point.status == Status::predicted && point.fit == Fit::fits && point.step_ms < step_ms)
        change.step_ms = point.step_ms;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::input) return;  // the change is not legal
      const std::lock_guard lock(mutex);
      problem = std::current_exception();
    }
  });
  if (problem) std::rethrow_exception(problem);
  std::erase_if(tried, [](const SingleChange& change) { return change.step_ms == 0; });
  std::stable_sort(tried.begin(), tried.end(),
                   [](const SingleChange& a, const SingleChange& b) { return a.step_ms < b.step_ms; });
  add_doubts(tried, scenario, platform, read);
  return tried;
}

namespace {

// Returns "use: 6 to 17 %, …"; "" of what is no overlap mode.
std::string advice_text(const SingleChange& change) {
  if (!change.gain) return "";
  const predict::Gain& gain = *change.gain;
  return fmt::format("{}: saves {:.0f} to {:.0f} %, {}",
                     name_of(verdict_of(gain.saved, gain.low, gain.high, predict::kBetweenStacks)), 100 * gain.low,
                     100 * gain.high, words_of(gain.decides));
}

}  // namespace

Sheet changes_sheet(const std::vector<SingleChange>& changes, double step_ms) {
  const bool has_modes = std::any_of(changes.begin(), changes.end(), [](const SingleChange& c) { return c.gain; });
  return {
      changes,
      std::vector<Column<SingleChange>>{
          {"change", "one change", [](const SingleChange& c) { return c.what; }},
          {"set", "", [](const SingleChange& c) { return c.set; }},
          {"step_ms", "step", [](const SingleChange& c) { return c.step_ms; },
           [](const SingleChange& c) { return time_text(c.step_ms); }},
          {"saved_pct", "change", [=](const SingleChange& c) { return 100 * (1 - c.step_ms / step_ms); },
           [=](const SingleChange& c) { return fmt::format("{:+.1f} %", 100 * (c.step_ms / step_ms - 1)); }},
          {"advice", has_modes ? "advice" : "",
           [](const SingleChange& c) {
             if (!c.gain) return nlohmann::json(nullptr);
             const predict::Gain& g = *c.gain;
             return nlohmann::json({{"verdict", name_of(verdict_of(g.saved, g.low, g.high, predict::kBetweenStacks))},
                                    {"saved_low_pct", 100 * g.low},
                                    {"saved_high_pct", 100 * g.high},
                                    {"decides", words_of(g.decides)}});
           },
           advice_text}}};
}

}  // namespace stretto::sweep
