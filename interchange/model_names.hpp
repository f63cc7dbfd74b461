#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

// A model that people ask for by its name: scenarios/model_names.toml, and every preset.
struct ModelName {
  std::string name;               // "llama3-8b"
  std::string preset;             // of [model]; "": `shape` has its sizes
  std::string shape;              // word of interchange/model_shapes.hpp, "qwen314b"
  std::string recipe;             // the model in names of Megatron-Bridge's recipes, "llama3_8b"; "": it has none
  std::vector<std::string> also;  // other spellings, folded
};

// Returns the name without case, signs, a repository's owner, and words that change no size:
// "meta-llama/Llama-3.1-8B-Instruct" becomes "llama318b".
std::string folded_model(std::string_view text);

// Returns all of them, in the order of the file, then presets that it does not name.
const std::vector<ModelName>& model_names();
// Returns the model that a text names; nullptr for none.
const ModelName* model_named(std::string_view text);
// Returns the spelling that is nearest to the text; "" where none is near.
std::string nearest_model(std::string_view text);

// Returns the keys of [model], one "key = value" in TOML a line.
std::string keys_of_model(const ModelName& model);

}  // namespace stretto
