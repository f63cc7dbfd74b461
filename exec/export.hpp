#pragma once
#include <string>

namespace stretto::exec {

// Writes the parameters of Stretto's checkpoint `checkpoint` to the safetensors file `to`, in f32, by the names that
// Hugging Face has for a model of its style (exec/weight_names.hpp). Needs memory for the parameters once. Throws
// Error(input) when the file is no checkpoint of Stretto's or its model has no such names, Error(runtime) when `to`
// cannot be written.
void export_to_huggingface(const std::string& checkpoint, const std::string& to);

}  // namespace stretto::exec
