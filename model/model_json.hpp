#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/transformer.hpp"

namespace stretto {

// Returns a model as the keys of a scenario's [model], with its `padded_vocab_size` and `parameters`, whether a preset,
// a Hugging Face config.json or the scenario gave it. A key that has no effect is null, such as rotary_base without
// rope.
nlohmann::ordered_json model_json(const Transformer& model);
// Returns the model for people, without keys that have no effect: "model: num_layers = 12, hidden_size = 768, …", in
// lines.
std::string model_text(const Transformer& model);

}  // namespace stretto
