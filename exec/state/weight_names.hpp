#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace stretto::exec {

// Names of a model's parameters in safetensors files of several programs. Stretto's own names are those of Parameter;
// Hugging Face's are those of its GPT2LMHeadModel, LlamaForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM,
// Qwen3MoeForCausalLM, DeepseekV2ForCausalLM and DeepseekV3ForCausalLM (transformers, modeling_gpt2.py,
// modeling_llama.py, …), whose models without a head write them without the prefix. LlamaForCausalLM rotates the halves
// of a head, as Rope does (model/ops/rope.hpp), so the rows of q and k keep their order.
//
// A parameter's name is its identity in a file, so this table reads names; all other code asks fields of the schedule.
struct WeightNaming {
  struct Row {
    const char* parameter;  // Parameter::name, or what it begins with before ".weight" and ".bias"
    // One for each of Parameter::segments, or one for the whole parameter; null: no more. Every expert has these, with
    // its number in place of "#".
    std::array<const char*, 3> pieces;
    bool is_transposed = false;  // the matrix is stored as [in, out] (GPT-2's Conv1D)
  };
  const char* title;                    // "Hugging Face's Llama"
  const char* layer;                    // text before the number of a layer: "layers."
  std::array<const char*, 2> prefixes;  // prefixes of all names but the head's; the first is used for writing
  std::span<const Row> rows;            // empty: Parameter::full_name()
  const char* known_by = "qkv";         // a file that has this parameter of the first layer uses the naming
};

// Returns all namings, Stretto's own first.
std::span<const WeightNaming> weight_namings();
// Returns the naming by which other programs know a model of this style. Throws Error(input) when there is none.
const WeightNaming& naming_for(const Transformer& model);

// The place of a parameter in a file: its pieces, one below the other, are its rows, or the elements of a vector.
struct WeightPlace {
  struct Piece {
    std::string name;
    std::int64_t rows = 0;
  };
  std::vector<Piece> pieces;
  bool is_transposed = false;
};
// Throws Error(input) when no file with such names can have this parameter.
WeightPlace place_of(const WeightNaming& naming, const std::string& prefix, const Parameter& parameter);

// Returns the prefix of the names in a file, or nullopt when they are not of this naming. `has` says whether a tensor
// exists.
std::optional<std::string> prefix_in(const WeightNaming& naming, const std::function<bool(const std::string&)>& has);

// Returns whether a tensor is one that programs store in addition to parameters: Stretto's optimizer state, Hugging
// Face's causal masks and rotary frequencies.
bool is_no_parameter(const std::string& tensor);

}  // namespace stretto::exec
