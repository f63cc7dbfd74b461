#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::exec {

// Weights with the names of Hugging Face's GPT2LMHeadModel, LlamaForCausalLM or Qwen3ForCausalLM, in f32
// (exec/state/weight_names.hpp). Throw Error(input) when these classes have no names for the model, Error(runtime) when
// a file cannot be written.
struct HuggingFaceFiles {
  std::string tensors;  // model.safetensors
  std::string config;   // config.json, "": not written
  // Called before each parameter, and may throw to end the export; the files and their folder are then removed.
  std::function<void()> may_end = {};
};

// Exports the parameters of Stretto's checkpoint `checkpoint`. Needs memory for one parameter at a time, and reads each
// twice. Throws Error(input) when the file is no checkpoint of Stretto's. Returns notes.
std::vector<std::string> export_to_huggingface(const std::string& checkpoint, const HuggingFaceFiles& to);
// Exports the parameters with which training of a scenario would begin: drawn, or loaded.
std::vector<std::string> export_initial(const Scenario& scenario, const HuggingFaceFiles& to);

}  // namespace stretto::exec
