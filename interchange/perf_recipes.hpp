#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interchange/bridge_recipes.hpp"

namespace stretto {

// Megatron-Bridge's performance recipes of text models that Stretto has (src/megatron/bridge/perf_recipes at 067f987d,
// August 2026), from scenarios/bridge_recipes.csv. A row is a recipe, a column a setting of its ConfigContainer by its
// dotted name; an empty cell is the default. Some are as Bridge makes them of the recipe's text: the overlap of
// gradients and parameters is what CommOverlapConfig decides (training/comm_overlap.py:553-583), layouts that functions
// return are in letters, graphs of the whole step are cuda_graph_impl "full_iteration", and those of a whole layer are
// of attn and mlp. Gathers of parameters overlap with nothing where reductions of gradients do not, which Megatron-LM
// does not do alone (arguments.py).
struct PerfKey {
  std::string model;      // "deepseek_v3"
  std::string task;       // "pretrain", "sft", "peft"
  std::string gpu;        // "gb300"
  std::string precision;  // "bf16", "fp8cs", "fp8ds", "fp8sc", "fp8mx", "nvfp4"
  std::string variant;    // "large_scale"; "" for most
  bool operator==(const PerfKey&) const = default;
};
struct PerfRecipe {
  PerfKey key;
  std::int64_t gpus = 1;
  std::string name;                                        // of its function, without "_config"
  std::vector<std::pair<std::string, std::string>> cells;  // [dotted name] in YAML
};

// Returns all of them. Throws Error(input) where the file is not there or has a wrong name.
const std::vector<PerfRecipe>& perf_recipes();

// Returns the recipe that setup_experiment.py takes: that of `gpus` GPUs, else the default one of the key, which is
// that of most GPUs but for some models (scripts/performance/utils/utils.py, _DEFAULT_GPU_COUNT_OVERRIDES); nullptr
// where the key has none.
const PerfRecipe* perf_recipe(const PerfKey& key, std::int64_t gpus);
// Returns the recipe of the name, with or without "_config"; nullptr for none.
const PerfRecipe* perf_recipe_by_name(std::string_view name);
// Returns the recipe that has most in common with the key, in the order of its fields.
const PerfRecipe& nearest_perf_recipe(const PerfKey& key, std::int64_t gpus);

BridgeRecipe settings_of(const PerfRecipe& recipe);

// Throws Error(input) where a section of a recipe that overrides have changed is no section any more.
void require_sections(const nlohmann::json& root, const std::string& name);

// Returns the name of the platform of a GPU, "gb300-nvl72" of "gb300"; "" where Stretto has none.
std::string platform_of_gpu(std::string_view gpu);

// Scales the batch of a recipe that is started on another number of GPUs by the number of replicas of the model, as
// Bridge does (scripts/common/benchmark_parallelism.py), unless the settings `root` have another batch than the recipe.
// `root` has the sections model and train. Throws Error(input) where the GPUs do not divide among replicas, or the
// batch is no whole number.
void scale_batch(nlohmann::json& root, const PerfRecipe& recipe, std::int64_t gpus, const std::string& name);
// Returns how many replicas of the model `gpus` GPUs have. Throws Error(input) where they do not divide.
std::int64_t replicas_of(const nlohmann::json& model, std::int64_t gpus, const std::string& name);

}  // namespace stretto
