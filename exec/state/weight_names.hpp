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
// Hugging Face's are those of its GPT2LMHeadModel, LlamaForCausalLM and Qwen3ForCausalLM (transformers,
// modeling_gpt2.py, modeling_llama.py, modeling_qwen3.py), which their models without a head write without the prefix.
// LlamaForCausalLM rotates the halves of a head, as Rope does (model/schedule/work.hpp), so the rows of q and k stay
// where they are.
struct WeightNaming {
  struct Row {
    const char* parameter;              // Parameter::name without ".weight" and ".bias"
    std::array<const char*, 3> pieces;  // as many as Parameter::segments, or one for all of it; null: no more
    bool is_transposed = false;         // the matrix is stored as [in, out] (GPT-2's Conv1D)
  };
  const char* title;                    // "Hugging Face's Llama"
  const char* layer;                    // what stands before the number of a layer: "layers."
  std::array<const char*, 2> prefixes;  // of all names but the head's; the first is written
  std::span<const Row> rows;            // empty: Parameter::full_name()
};

// Stretto's own first.
std::span<const WeightNaming> weight_namings();
// The one by which other programs know a model of this style. Throws Error(input) when there is none.
const WeightNaming& naming_for(const Transformer& model);

// Where a parameter is in a file: its pieces one above the other are its rows, or the elements of a vector.
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

// The prefix of the names in a file, or nullopt when they are not of this naming. `has` says whether a tensor is there.
std::optional<std::string> prefix_in(const WeightNaming& naming, const std::function<bool(const std::string&)>& has);

// Whether a tensor is one that programs keep beside parameters: Stretto's optimizer state, causal masks and rotary
// frequencies of Hugging Face's.
bool is_no_parameter(const std::string& tensor);

}  // namespace stretto::exec
