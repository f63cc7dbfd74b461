#include "page/lists.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/data_folder.hpp"
#include "base/values_of.hpp"
#include "model/scenario/keys.hpp"
#include "model/transformer.hpp"
#include "predict/accuracy.hpp"
#include "report/colours.hpp"
#include "report/stage_bars.hpp"

namespace stretto::page {
namespace {

using Json = nlohmann::json;

// Keys that the form shows first, in this order; it shows all others by section.
constexpr const char* kFirst[][2] = {
    {"parallel", "tensor_model_parallel_size"},
    {"parallel", "pipeline_model_parallel_size"},
    {"parallel", "virtual_pipeline_model_parallel_size"},
    {"parallel", "context_parallel_size"},
    {"parallel", "expert_model_parallel_size"},
    {"parallel", "expert_tensor_parallel_size"},
    {"parallel", "moe_token_dispatcher_type"},
    {"parallel", "data_parallel_size"},
    {"training", "micro_batch_size"},
    {"training", "global_batch_size"},
    {"model", "seq_length"},
    {"parallel", "pipeline_schedule"},
    {"parallel", "data_parallel_sharding_strategy"},
    {"parallel", "use_distributed_optimizer"},
    {"parallel", "sequence_parallel"},
    {"training", "recompute_granularity"},
    {"training", "precision"},
    {"training", "fp8_format"},
    {"training", "fp8_recipe"},
    {"training", "fp4_format"},
    {"training", "cuda_graph_modules"},
    {"training", "reset_attention_mask"},
};

std::string kind_of(const ScenarioKey& key, std::vector<std::string>& choices) {
  choices.assign(key.choices.begin(), key.choices.end());
  if (key.field == nullptr) return key.type == std::string_view("boolean") ? "boolean" : "text";
  Scenario scenario;
  const Field field = key.field(scenario);
  if (const auto* word = std::get_if<WordField>(&field)) {
    for (int i = 0; word->name(static_cast<std::uint8_t>(i)) != std::string_view("?"); ++i)
      choices.emplace_back(word->name(static_cast<std::uint8_t>(i)));
    return "word";
  }
  if (std::holds_alternative<bool*>(field)) return "boolean";
  if (std::holds_alternative<double*>(field)) return "number";
  if (std::holds_alternative<std::int64_t*>(field) || std::holds_alternative<std::uint64_t*>(field)) return "integer";
  return choices.empty() ? "text" : "word";
}

Json key_json(const ScenarioKey& key) {
  std::vector<std::string> choices;
  const std::string kind = kind_of(key, choices);
  const auto bound = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  return {{"key", key.full_name()}, {"section", key.section},
          {"name", key.name},       {"kind", kind},
          {"choices", choices},     {"least", bound(key.bounds.min)},
          {"unit", key.unit},       {"most", bound(key.bounds.max)},
          {"meaning", key.meaning}, {"range", key.range}};
}

// Returns the kinds of bars, whose places in the list are their numbers, with the classes of their colours.
Json bars_json() {
  const auto phase_of = [](BarKind kind) {
    switch (kind) {
      case BarKind::forward:
        return Phase::forward;
      case BarKind::backward:
        return Phase::dgrad;
      case BarKind::weight_gradient:
        return Phase::wgrad;
      case BarKind::setup:
        return Phase::setup;
      case BarKind::grad_sync:
        return Phase::grad_sync;
      case BarKind::optimizer:
        return Phase::optimizer;
      case BarKind::param_sync:
        return Phase::param_sync;
    }
    return Phase::setup;
  };
  Json bars = Json::array();
  for (int i = 0; i < kBarKinds; ++i) {
    const auto kind = static_cast<BarKind>(i);
    bars.push_back({{"name", name_of(kind)}, {"colour", colour_of_phase(phase_of(kind))}});
  }
  return bars;
}

}  // namespace

Json lists() {
  Json keys = Json::array(), first = Json::array(), accuracy = Json::array();
  for (const predict::Accuracy& row : predict::published_accuracies())
    accuracy.push_back({{"profile", row.profile}, {"platform", row.platform}, {"steps", row.steps}});
  for (const std::string_view section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) keys.push_back(key_json(key));
  for (const auto& [section, name] : kFirst) first.push_back(scenario_key(section, name).full_name());
  return {{"scenarios", data_names("models")},
          {"platforms", data_names("platforms")},
          {"profiles", data_names("profiles")},
          {"presets", preset_names()},
          {"keys", std::move(keys)},
          {"first", std::move(first)},
          {"accuracy", std::move(accuracy)},
          {"bars", bars_json()},
          {"css", palette_css()}};
}

}  // namespace stretto::page
