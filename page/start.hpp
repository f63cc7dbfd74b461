#pragma once
#include <string>

namespace stretto::page {

// Returns the TOML of a scenario to begin with: the model, a preset or the path of a config.json of Hugging Face's, on
// 8 H100 as NeMo runs it, or Megatron-Bridge where it has experts; sequences of at most 8192 tokens. Throws Error(input)
// as read_hf_config() and preset() do.
std::string start_toml(const std::string& model);

}  // namespace stretto::page
