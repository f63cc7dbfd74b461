#include "page/answer.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ask/show.hpp"
#include "ask/side_by_side.hpp"
#include "ask/simulate.hpp"
#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/shell.hpp"
#include "interchange/megatron.hpp"
#include "model/scenario/keys.hpp"
#include "page/cluster.hpp"
#include "page/diagnosed.hpp"
#include "page/drawn_step.hpp"
#include "page/imported.hpp"
#include "page/lists.hpp"
#include "page/scenario_toml.hpp"
#include "page/search.hpp"
#include "page/start.hpp"
#include "page/strip.hpp"
#include "page/trials.hpp"
#include "page/window.hpp"
#include "predict/inputs.hpp"
#include "report/critical_path.hpp"
#include "report/prediction.hpp"
#include "report/sheet.hpp"
#include "report/units.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;

std::string dp_of(std::int64_t size) { return "parallel.data_parallel_size=" + std::to_string(size); }

// Returns the overrides with as many data-parallel ranks as make up `gpus`; 0: the scenario's own. The size of a
// replica is that of the scenario with any data-parallel size with which it can be read.
std::vector<std::string> with_gpus(const std::string& given, const std::string& platform, std::vector<std::string> set,
                                   std::int64_t gpus) {
  if (gpus <= 0) return set;
  const auto ranks_of_replica = [&]() -> std::int64_t {
    std::optional<Error> first;
    for (std::int64_t size = 1; size <= gpus; size *= 2) try {
        std::vector<std::string> all = set;
        all.push_back(dp_of(size));
        return predict::read_scenario_input(given, std::move(all), platform).parallel.ranks() / size;
      } catch (const Error& error) {
        if (!first) first = error;
      }
    throw *first;
  };
  const std::int64_t of_replica = ranks_of_replica();
  if (gpus % of_replica != 0)
    throw input_error("GPUs: expected a multiple of " + std::to_string(of_replica) +
                      ", the GPUs that one copy of the model takes, got " + std::to_string(gpus));
  set.push_back(dp_of(gpus / of_replica));
  return set;
}

// Returns a platform. Those that come with Stretto do not change while a page is open, so each is read once: the tables
// of a GPU's products take longer to read than most steps take to simulate.
std::shared_ptr<const sim::Platform> platform_of(const std::string& name, const Scenario& scenario) {
  static std::map<std::string, std::shared_ptr<const sim::Platform>> known;
  const std::string& asked = name.empty() ? scenario.platform : name;
  const bool is_shipped = is_data_name(asked) || asked.starts_with(kDataFolder);
  if (const auto found = known.find(asked); is_shipped && found != known.end()) return found->second;
  auto read = std::make_shared<const sim::Platform>(predict::read_platform_input(name, scenario));
  if (is_shipped) known[asked] = read;
  return read;
}

// Reads the request's scenario and platform, as `stretto simulate` does.
ask::Asked asked_of(const Json& request) {
  const std::string given = request.at("scenario").get<std::string>(), platform = request.value("platform", "");
  ask::Asked asked({given,
                    with_gpus(given, platform, request.value("set", std::vector<std::string>{}),
                              request.value("gpus", std::int64_t{0})),
                    platform});
  asked.read_platform(platform_of(platform, asked.scenario));
  return asked;
}

Json table_json(const Table& table) { return {{"headers", table.headers()}, {"cells", table.cells()}}; }

Json values_json(const Scenario& scenario) {
  Json values = Json::object();
  for (const std::string_view section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      if (Json value = value_of(key, scenario); !value.is_null()) values[key.full_name()] = std::move(value);
  return values;
}

// Returns the figures that the page shows large, as the command writes them.
Json headline_json(const Prediction& p) {
  Json list = Json::array();
  const auto add = [&](const char* what, const std::string& text) { list.push_back({{"what", what}, {"text", text}}); };
  add("step", time_text(p.step_ms));
  if (p.throughput.mfu) add("MFU", percent_text(*p.throughput.mfu));
  add("tokens/s", fmt::format("{:.0f}", p.throughput.tokens_per_s));
  add("tokens/s a GPU", fmt::format("{:.0f}", p.throughput.tokens_per_s_per_device));
  add("GPUs", std::to_string(p.devices));
  const std::string verdict = std::string("memory: ") + name_of(p.memory.fit());
  add(verdict.c_str(),
      fmt::format("{} of {}", size_text(double(p.memory.predicted_bytes())), size_text(double(p.memory.device_bytes))));
  return list;
}

Json step_of(ask::Asked& asked, bool with_interval) {
  const ask::SimulateAnswer answer = ask::simulate(asked, {.interval = with_interval});
  const Prediction& p = answer.step.prediction;
  return {{"simulate", ask::json_of(answer)},
          {"shown",
           {{"about", about_text(p)},
            {"summary", table_json(prediction_table(p))},
            {"memory", table_json(memory_table(p.memory))},
            {"limits", limits_text(p)}}},
          {"headline", headline_json(p)},
          {"stages_memory", stages_memory_json(p.memory)},
          {"set", asked.request.set},
          {"platform", asked.platform->name},
          {"profile", profile_of(asked.request.scenario, asked.request.set)},
          {"values", values_json(asked.scenario)},
          {"gates", gates_json(ask::gates(asked)).at("gates")}};
}

WindowRequest window_of(const Json& request) {
  WindowRequest window;
  window.gpu = request.value("gpu", std::int64_t{0});
  window.from = request.at("from").get<Picoseconds>();
  window.to = request.at("to").get<Picoseconds>();
  window.most = request.value("most", window.most);
  window.wants_critical = request.value("critical", false);
  return window;
}

Json texts_of(const ask::Asked& asked) {
  const auto& [given, set, platform] = asked.request;
  std::string command = "stretto simulate " + in_shell(given);
  if (!platform.empty()) command += " --platform " + in_shell(platform);
  for (const std::string& one : set) command += " \\\n    --set " + in_shell(one);
  Json megatron;
  try {
    const Translation flags = to_megatron(asked.scenario);
    megatron = {{"text", flags.text}, {"notes", flags.notes}};
  } catch (const Error& error) {
    megatron = {{"error", error.what()}};
  }
  return {
      {"command", command + "\n"}, {"toml", scenario_toml(given, set, platform)}, {"megatron", std::move(megatron)}};
}

Json limits_of(ask::Asked& asked, bool with_interval) {
  const ask::SimulateAnswer answer = ask::simulate(asked, {.limits = true, .interval = with_interval});
  const double step_ms = answer.step.prediction.step_ms;
  const ask::StepLimits& limits = answer.limits.value();
  return {{"simulate", ask::json_of(answer)},
          {"tables",
           {{"path", path_text(limits.path)},
            {"numbers", table_json(sensitivity_sheet(limits.numbers).table())},
            {"machines", table_json(machines_sheet(limits.machines, step_ms).table())},
            {"changes", table_json(changes_sheet(limits.changes, step_ms).table())}}}};
}

Json answer_to(const Json& request) {
  const std::string what = request.at("what").get<std::string>();
  if (what == "lists") return lists();
  if (what == "start") return {{"toml", start_toml(request.at("model").get<std::string>())}};
  if (what == "import")
    return imported_json(request.at("name").get<std::string>(), request.at("text").get<std::string>());
  ask::Asked asked = asked_of(request);
  const bool with_interval = request.value("with_interval", false);
  if (what == "step") return step_of(asked, with_interval);
  if (what == "strip") return strip_json(drawn_step(asked));
  if (what == "window") return window_json(drawn_step(asked), window_of(request));
  if (what == "cluster") return cluster_json(drawn_step(asked), request.value("gpu", std::int64_t{0}));
  if (what == "texts") return texts_of(asked);
  if (what == "limits") return limits_of(asked, with_interval);
  if (what == "search") return search_of(asked, request);
  if (what == "interval") return ask::json_of(ask::interval_of(asked));
  if (what == "changes") return changes_of(asked);
  if (what == "hardware") return hardware_of(asked);
  if (what == "diagnose") return diagnosed_json(asked, request.at("trace").get<std::string>());
  if (what == "try" || what == "ratio") {
    Json changed = request;
    for (const Json& one : request.value("with", Json::array())) changed["set"].push_back(one);
    if (const std::string platform = request.value("with_platform", ""); !platform.empty())
      changed["platform"] = platform;
    if (what == "ratio") changed.merge_patch(request.at("other"));
    ask::Asked other = asked_of(changed);
    if (what == "try") return trial_of(asked, other);
    std::vector<ask::Asked> both;
    both.push_back(std::move(asked));
    both.push_back(std::move(other));
    return ask::json_of(ask::side_by_side(std::move(both), {})).at("changes").at(1);
  }
  throw input_error("what: expected a kind of answer of page/answer.hpp, such as step, got \"" + what + "\"");
}

}  // namespace

std::string answer(const std::string& request) {
  try {
    return answer_to(Json::parse(request)).dump();
  } catch (const std::bad_alloc&) {
    return Json{{"error", "more memory is needed than a page may have; the command has no such limit"}}.dump();
  } catch (const std::exception& error) {
    return Json{{"error", error.what()}}.dump();
  }
}

}  // namespace stretto::page
