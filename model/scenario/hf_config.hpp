#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "model/transformer.hpp"

namespace stretto {

// A model as the config.json of Hugging Face's transformers states it. In: families of hf_families.hpp, by their
// model_type. Out: gpt2 (GPT2Config), llama, mistral, mixtral, qwen3, qwen3_moe, deepseek_v2 and deepseek_v3. Absent
// keys have the defaults of their transformers classes.

struct HfConfig {
  Transformer model;  // seq_length is all of max_position_embeddings
};

// Reads a file. Throws Error(input), one line with the file and the key: no JSON object, a key of another type or
// range, a slip of a known key, or a family that needs what Stretto's model lacks. What a prediction may leave out,
// such as biases of q, k and v alone and unknown keys, is in Transformer::left_out.
HfConfig read_hf_config(const std::string& path);
// Parses text; `name` stands for the file. Throws as read_hf_config.
HfConfig parse_hf_config(std::string_view text, const std::string& name);

// Returns the config.json of a model that one of these classes can express: GPT2LMHeadModel, or LlamaForCausalLM and
// Qwen3ForCausalLM and classes with experts, which have no hidden_dropout. Throws Error(input) for any other model.
std::string write_hf_config(const Transformer& model);

// The family of Hugging Face models that has a model's parameters.
enum class HfStyle : std::uint8_t { gpt2, llama };
// Returns the family. Throws Error(input) where the model mixes the two.
HfStyle hf_style(const Transformer& model);

}  // namespace stretto
