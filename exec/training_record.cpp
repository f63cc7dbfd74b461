#include "exec/training_record.hpp"

#include <fmt/format.h>

#include <set>

#include "base/error.hpp"
#include "model/scenario/keys.hpp"

namespace stretto::exec {

CheckpointMetadata identity_of(const Scenario& s) {
  CheckpointMetadata identity = {{"global_batch_size", std::to_string(s.training.global_batch_size)},
                                 {"frozen_base", std::to_string(s.training.frozen_base)},
                                 {"seed", std::to_string(s.training.seed)},
                                 {"precision", s.training.precision}};
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
    // Checkpoints from before there was such a key do not name it.
    const bool is_newer = newer.contains(key) || key == "frozen_base";
    const std::string absent = is_newer ? defaults.at(key) : "(absent)";
    const std::string& written = found == checkpoint.metadata().end() ? absent : found->second;
    if (written != expected)
      throw input_error(checkpoint.name() + ": was written with " + key + " = " + written + ", the scenario has " +
                        expected + "; choose another checkpoint_dir or the same " + key);
  }
}

CheckpointMetadata settings_of(const Training& t, const TokenSource& data) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  return {{"data", data.identity()},
          {"lr", number(t.lr)},
          {"min_lr", number(t.min_lr)},
          {"lr_warmup_iters", number(t.lr_warmup_iters)},
          {"lr_decay_iters", number(t.lr_decay_iters > 0 ? t.lr_decay_iters : t.train_iters)},
          {"weight_decay", number(t.weight_decay)},
          {"adam_beta1", number(t.adam_beta1)},
          {"adam_beta2", number(t.adam_beta2)},
          {"adam_eps", number(t.adam_eps)},
          {"clip_grad", number(t.clip_grad)}};
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
