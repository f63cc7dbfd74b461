#include "exec/state/training_record.hpp"

#include <fmt/format.h>

#include <set>

#include "base/error.hpp"
#include "model/scenario/keys.hpp"

namespace stretto::exec {

CheckpointMetadata identity_of(const Scenario& s) {
  CheckpointMetadata identity;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      if (is_identity(key.record)) identity[key.name] = identity_text(value_of(key, s));
  return identity;
}

void require_same_training(const TensorFile& checkpoint, const Scenario& scenario) {
  const CheckpointMetadata defaults = identity_of({});
  std::set<std::string> newer;
  for (const char* section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section))
      if (key.record == Record::identity_since) newer.insert(key.name);
  for (const auto& [key, expected] : identity_of(scenario)) {
    const auto found = checkpoint.metadata().find(key);
    // Checkpoints that are older than a key do not have it.
    const std::string absent = newer.contains(key) ? defaults.at(key) : "(absent)";
    const std::string& written = found == checkpoint.metadata().end() ? absent : found->second;
    if (written != expected)
      throw input_error(checkpoint.name() + ": was written with " + key + " = " + written + ", the scenario has " +
                        expected + "; choose another checkpoint_dir or the same " + key);
  }
}

CheckpointMetadata settings_of(const Training& training, const TokenSource& data) {
  Scenario scenario;
  scenario.training = training;
  CheckpointMetadata settings = {{"data", data.identity()}};
  for (const ScenarioKey& key : scenario_keys_of("training"))
    if (key.record == Record::setting) {
      const KeyValue value = value_of(key, scenario);
      settings[key.name] = value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
    }
  return settings;
}

std::string changed_settings(const TensorFile& checkpoint, const CheckpointMetadata& settings) {
  std::string changed;
  for (const auto& [key, now] : settings) {
    const auto found = checkpoint.metadata().find(key);
    if (found == checkpoint.metadata().end() || found->second == now) continue;
    changed += fmt::format("{}{} = {} (was {})", changed.empty() ? "" : ", ", key, now, found->second);
  }
  return changed;
}

}  // namespace stretto::exec
