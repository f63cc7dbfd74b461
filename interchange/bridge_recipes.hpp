#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// Recipes of Megatron-Bridge that train a text model (src/megatron/bridge/recipes at 067f987d, August 2026).
// Recipes are programs in Python; the table has the settings that a step depends on.
struct BridgeRecipe {
  std::string name;         // "llama3_8b_pretrain"
  std::int64_t gpus = 1;    // that its name says
  nlohmann::json settings;  // of its ConfigContainer, sections as in YAML; sizes of the model are in model_shapes.hpp
  std::string preset = {};  // of a model with experts
  std::string gpu = {};     // of a performance recipe (perf_recipes.hpp): "gb300"
};
// Returns the library's recipes of models with experts that Stretto has.
std::vector<BridgeRecipe> recipes_with_experts();

// Returns a recipe by its name, "llama3_8b_pretrain_config" or "llama3_8b_pretrain_2gpu_h100_bf16_config", or by the
// name of a file of overrides, "quantized_llama3_8b_pretrain_override_example": the performance recipe of the name, else
// of several recipes whose words the name has, the one with most words. "finetune" means "peft" where `has_peft`, else "sft". Returns nothing where no recipe
// fits.
std::optional<BridgeRecipe> bridge_recipe(std::string_view name, bool has_peft = false);

// Returns what a recipe's name says that Stretto does not model: "experts", "fp8".
std::vector<std::string> not_modelled_by_name(std::string_view name);

}  // namespace stretto
