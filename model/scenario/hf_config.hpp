#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "model/transformer.hpp"

namespace stretto {

// A model as the config.json of Hugging Face's transformers states it, both ways: model_type gpt2 (GPT2Config), llama,
// mistral and qwen3. Keys that are absent have the defaults of their classes there.

struct HfConfig {
  Transformer model;                // seq_length is all of max_position_embeddings
  std::int64_t sliding_window = 0;  // a token sees so many keys at most; 0: all before it
};

// Throws Error(input), one line with the file and the key: no JSON object, a key of another type or range, one that
// nobody knows, or what Stretto's model has not, such as other scalings of rotary positions than "linear" and "llama3",
// experts or biases of q, k and v alone.
HfConfig read_hf_config(const std::string& path);
// The same from text; `name` stands for the file.
HfConfig parse_hf_config(std::string_view text, const std::string& name);

// The config.json of a model that has their names (GPT2LMHeadModel, or LlamaForCausalLM and Qwen3ForCausalLM, which
// know no hidden_dropout).
// Throws Error(input) for any other.
std::string write_hf_config(const Transformer& model);

// Which of their models has a model's parameters.
enum class HfStyle : std::uint8_t { gpt2, llama };
// Throws Error(input) where it is a mixture of the two.
HfStyle hf_style(const Transformer& model);

}  // namespace stretto
