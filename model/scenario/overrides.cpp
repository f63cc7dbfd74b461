#include "model/scenario/overrides.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/toml_text.hpp"
#include "model/scenario/keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

constexpr std::array kSections = {"model", "parallel", "overlap", "training"};

// Returns the keys in full by their names without a section, spellings of other programs included.
const std::map<std::string, std::vector<std::string>>& keys_by_name() {
  static const auto all = [] {
    std::map<std::string, std::vector<std::string>> keys;
    for (const char* section : kSections)
      for (const ScenarioKey& row : scenario_keys_of(section)) {
        keys[row.name].push_back(row.full_name());
        for (const char* other : row.also) keys[other].push_back(std::string(section) + "." + other);
      }
    return keys;
  }();
  return all;
}

const TomlNode* find(const TomlNode& root, const char* section, const char* key) {
  const auto& table = std::get<TomlNode::Table>(root.data);
  const auto found = table.find(section);
  const auto* keys = found == table.end() ? nullptr : std::get_if<TomlNode::Table>(&found->second.data);
  if (keys == nullptr) return nullptr;
  const auto value = keys->find(key);
  return value == keys->end() ? nullptr : &value->second;
}

void drop_recompute_options(TomlNode& root, bool was_given) {
  const TomlNode* granularity = find(root, "training", "recompute_granularity");
  if (granularity == nullptr ? !was_given : granularity->line != 0) return;
  const auto* word = granularity == nullptr ? nullptr : std::get_if<std::string>(&granularity->data);
  const auto drop = [&](const char* key) {
    const TomlNode* option = find(root, "training", key);
    if (option == nullptr || option->line == 0) return;
    auto& sections = std::get<TomlNode::Table>(root.data);
    std::get<TomlNode::Table>(sections.at("training").data).erase(key);
  };
  if (word == nullptr || *word != "selective") drop("recompute_modules");
  if (word == nullptr || *word != "full")
    for (const char* key : {"recompute_method", "recompute_num_layers"}) drop(key);
}

}  // namespace

const std::vector<ShortName>& short_names() {
  static const std::vector<ShortName> names = {{"tp", "parallel.tensor_model_parallel_size"},
                                               {"pp", "parallel.pipeline_model_parallel_size"},
                                               {"vp", "parallel.virtual_pipeline_model_parallel_size"},
                                               {"cp", "parallel.context_parallel_size"},
                                               {"ep", "parallel.expert_model_parallel_size"},
                                               {"etp", "parallel.expert_tensor_parallel_size"},
                                               {"dp", "parallel.data_parallel_size"},
                                               {"mbs", "training.micro_batch_size"},
                                               {"recompute", "training.recompute_granularity"},
                                               {"sharding", "parallel.data_parallel_sharding_strategy"},
                                               {"schedule", "parallel.pipeline_schedule"}};
  return names;
}

std::string full_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return text;
  std::string key = text.substr(0, equals);
  while (key.ends_with(' ')) key.pop_back();
  for (const ShortName& known : short_names())
    if (key == known.name) return known.key + text.substr(equals);
  const auto found = keys_by_name().find(key);
  return found != keys_by_name().end() && found->second.size() == 1 ? found->second.front() + text.substr(equals)
                                                                    : text;
}

std::vector<std::string> full_settings(std::vector<std::string> texts) {
  for (std::string& one : texts) one = full_setting(one);
  return texts;
}

void apply_settings(TomlNode& root, const std::vector<std::string>& overrides) {
  const bool was_given = find(root, "training", "recompute_granularity") != nullptr;
  for (const std::string& one : overrides) apply_override(root, full_setting(one));
  drop_recompute_options(root, was_given);
}

void refuse_keys_of_other_sections(TomlTable& root) {
  const auto& by_name = keys_by_name();
  for (const char* section : kSections) {
    TomlTable table = section_of(root, section);
    for (const std::string& key : table.keys()) {
      const auto found = by_name.find(key);
      if (found == by_name.end()) continue;
      const std::string own = std::string(section) + "." + key;
      if (std::find(found->second.begin(), found->second.end(), own) != found->second.end()) continue;
      throw table.failure(key, "expected a key of [" + std::string(section) +
                                   "], got one of another section; did you " + "mean \"" + found->second.front() +
                                   "\"?");
    }
  }
}

}  // namespace stretto
