#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "exec/state/weights.hpp"
#include "tests/fuzz/heap.hpp"

namespace {

using namespace stretto;

// Small models of both styles, whose files are small.
Transformer model_of(bool is_llama) {
  Transformer model;
  model.num_layers = 1;
  model.hidden_size = 2;
  model.num_attention_heads = 1;
  model.ffn_hidden_size = 2;
  model.seq_length = 2;
  model.vocab_size = model.padded_vocab_size = 3;
  model.max_position_embeddings = 2;
  return is_llama ? in_llama_style(model) : model;
}

}  // namespace

// The input is a file of weights, Stretto's or Hugging Face's. Only stretto::Error may be thrown, and all tensors that
// are found must be readable.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Transformer models[] = {model_of(false), model_of(true)};
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  for (const Transformer& model : models) {
    const HeapLimit limit(size, std::size_t{64} << 10);  // the model's parameters come from the graphs of its layers
    try {
      const auto weights =
          exec::Weights::of(exec::TensorFile(ReadFile::of({bytes, bytes + size}, "fuzz.safetensors")), model);
      for (const Parameter& parameter : parameters(model)) {
        const exec::FullTensor read = weights.read(parameter.full_name());
        if (read.values.size() != static_cast<std::size_t>(read.shape[0] * read.shape[1])) __builtin_trap();
      }
    } catch (const Error&) {
    }
  }
  return 0;
}
