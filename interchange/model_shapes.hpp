#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "interchange/imported.hpp"
#include "model/transformer.hpp"

namespace stretto {

// Sizes and style of models that recipes name but do not spell out: torchtitan's flavors, Megatron-Bridge's recipes.
// Sizes are those of the models' published configurations (config.json on Hugging Face; torchtitan/models of February
// 2026).

// Finds a model by the name of a file or recipe, "llama32_1b_pretrain.yaml", and sets keys of [model] that are absent.
// Returns false when no model is known.
bool add_shape_by_name(std::string_view name, Settings& settings);
// Finds a model by torchtitan's [model] name and flavor, "llama3" and "8B". Throws nothing; returns false when no model
// is known.
bool add_shape_by_flavor(std::string_view name, std::string_view flavor, Settings& settings);

// Returns torchtitan's [model] name and flavor of a model, whatever its length of sequences; nullopt where it has none.
std::optional<std::pair<std::string, std::string>> flavor_of(const Transformer& model);

}  // namespace stretto
