#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::exec {

// Weights as Hugging Face's GPT2LMHeadModel, LlamaForCausalLM or Qwen3ForCausalLM has them, in f32 by their names
// (exec/state/weight_names.hpp). Throw Error(input) when the model has no such names, Error(runtime) when a file cannot
// be written.
struct HuggingFaceFiles {
  std::string tensors;  // model.safetensors
  std::string config;   // config.json, "": none
  // Is called before each parameter, and may throw to end it; nothing is left of the files and their folder then.
  std::function<void()> may_end = {};
};

// The parameters of Stretto's checkpoint `checkpoint`. Needs memory for one of them at a time, and reads them twice.
// Throws Error(input) when the file is no checkpoint of Stretto's. Returns notes.
std::vector<std::string> export_to_huggingface(const std::string& checkpoint, const HuggingFaceFiles& to);
// Those that training of a scenario would begin with: drawn, or loaded.
std::vector<std::string> export_initial(const Scenario& scenario, const HuggingFaceFiles& to);

}  // namespace stretto::exec
