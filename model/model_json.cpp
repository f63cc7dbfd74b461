#include "model/model_json.hpp"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "model/scenario/keys.hpp"

namespace stretto {

nlohmann::ordered_json model_json(const Transformer& model) {
  Scenario scenario;
  scenario.model = model;
  nlohmann::ordered_json json;
  for (const ScenarioKey& key : scenario_keys_of("model")) {
    if (key.field != nullptr || key.get != nullptr) json[key.name] = acting_value_of(key, scenario);
    if (key.name == std::string_view("make_vocab_size_divisible_by"))
      json["padded_vocab_size"] = model.padded_vocab_size;
  }
  json["parameters"] = parameter_count(model);
  return json;
}

std::string model_text(const Transformer& model) {
  constexpr std::size_t kWidth = 120;
  std::string text, line = "model:";
  const auto items = model_json(model);
  for (const auto& [key, value] : items.items()) {
    if (value.is_null()) continue;
    const std::string item = " " + key + " = " + value.dump() + (key == "parameters" ? "" : ",");
    if (line.size() + item.size() > kWidth) text += std::exchange(line, "      ") + "\n";
    line += item;
  }
  return text + line + "\n";
}

}  // namespace stretto
