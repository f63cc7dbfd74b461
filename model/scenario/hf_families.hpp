#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace stretto {

// Families of models by the model_type of their config.json: rows of switches (scenarios/families.toml) by which the
// configuration of a family becomes one of the few whose keys are read.

struct HfFamily {
  std::string like;     // the family whose keys the configuration has now: "llama", "deepseek_v3"
  std::string experts;  // the family whose experts it has: "none", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"
  bool has_layer_norm = false, has_plain_mlp = false, has_all_biases = false, has_head_norms = false;
  // Keys of [model] and their values; no key is of a number of layers.
  std::vector<std::pair<std::string, nlohmann::json>> set;
  // Patterns have for each layer 1 where attention has a window or chunks, and 1 where it has no rotary positions;
  // empty: in none, or for windows in all where there is one.
  std::vector<std::int64_t> windows, no_rope;
  std::vector<std::string> left_out;  // what differs and is left out, one sentence each
};

// Rewrites a configuration: descends into `text_config`, renames and removes keys, and adds defaults. `rename` is
// called with the old and new name of each key. Throws Error(input) with `place` for an unknown model_type, and for a
// family that needs what the model lacks: all of it at once. model_type stays for the reader where it is no string.
HfFamily take_family(nlohmann::json& config, const std::string& place,
                     const std::function<void(const std::string& from, const std::string& to)>& rename);

}  // namespace stretto
