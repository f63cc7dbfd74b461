#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "interchange/benchmark_options.hpp"
#include "interchange/perf_recipes.hpp"

namespace stretto {

struct BenchmarkRun {
  const PerfRecipe& recipe;
  std::int64_t gpus;
  const std::string& name;  // for messages
  bool is_checked = true;   // layout and batch are final, so that both must fit the GPUs
  std::string connections;  // CUDA_DEVICE_MAX_CONNECTIONS of the launcher's environment, "" for none
};

// Changes a recipe's settings `root`, which Hydra's words have changed, by the options, as Megatron-Bridge's
// scripts/performance/utils/overrides.py does (067f987d): in its order and with its checks. Where the command has
// another number of GPUs than the recipe, the batch grows with the replicas of the model. Throws Error(input) for what
// Bridge refuses.
void apply_benchmark_options(nlohmann::json& root, const BenchmarkOptions& options, const BenchmarkRun& run);

}  // namespace stretto
