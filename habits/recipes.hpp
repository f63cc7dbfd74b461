#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "habits/model_names.hpp"
#include "interchange/perf_recipes.hpp"

namespace stretto::habits {

// A recipe of Megatron-Bridge for a model (scenarios/bridge_recipes.csv, and the recipes of its library), as keys of a
// scenario.
struct Recipe {
  std::string name;  // "deepseek_v3_pretrain_256gpu_gb300_fp8mx"
  std::string gpu;   // "gb300"; the library's are for H100
  std::int64_t gpus = 1;
  std::string profile;
  std::map<std::string, std::string> keys;  // ["section.key"] value in TOML
  std::vector<std::string> notes;           // settings that are not modelled

  std::int64_t number(const std::string& key, std::int64_t otherwise) const;
  // Layouts of the recipe are for multiples of this number of GPUs: tp · cp · pp, and with experts etp · ep · pp.
  std::int64_t least_gpus() const;
};

// Returns the key of bridge_recipes.csv of a platform's GPU: "gb300" of "gb300-nvl72"; "h100" for platforms without
// recipes of their own.
std::string recipe_gpu(const std::string& platform);
// Returns the word of a precision in recipes' names: "fp8cs" of "fp8_cs".
std::string recipe_precision(std::string precision);

// Returns the recipe of a model, GPU (recipe_gpu()), precision ("bf16", "fp8_cs") and task ("pretrain", "sft", "lora")
// that Bridge takes for `gpus` GPUs, or nothing where it has none. With `must_divide` the recipe's layout divides the
// GPUs, if there is such a recipe; its own number of GPUs may be another.
std::optional<Recipe> recipe_of(const ModelName& model, const std::string& gpu, const std::string& precision,
                                const std::string& task, std::int64_t gpus, bool must_divide);

// Returns a recipe that ships, on its own number of GPUs.
Recipe shipped_recipe(const PerfRecipe& recipe);
// Returns the recipe as a scenario in TOML on the platform.
std::string text_of(const Recipe& recipe, const std::string& platform);

// Returns recipe_of()'s recipe with the batch and the replicas of `gpus`, and with `overrides`, "section.key=value".
// Throws Error(input) with the nearest numbers of GPUs that its layout divides.
Recipe scaled(const Recipe& recipe, std::int64_t gpus, const std::vector<std::string>& overrides);

}  // namespace stretto::habits
