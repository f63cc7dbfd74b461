#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/transformer.hpp"

namespace stretto {

// A model by the keys of a scenario's [model], and its `padded_vocab_size` and `parameters`: as a preset, a config.json
// of Hugging Face's or the scenario gave them. null: what does not act, such as rotary_base without rope.
nlohmann::ordered_json model_json(const Transformer& model);
// The same for people, without what does not act: "model: num_layers = 12, hidden_size = 768, …", in lines.
std::string model_text(const Transformer& model);

}  // namespace stretto
