#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// A decoder-only transformer. GPT-2 style (Radford et al. 2019): LayerNorm before each sublayer, GELU (tanh), learned
// positions, biases, output head tied to the token embedding.
struct Transformer {
  std::int64_t num_layers = 12;
  std::int64_t hidden_size = 768;
  std::int64_t num_attention_heads = 12;
  std::int64_t ffn_hidden_size = 3072;
  std::int64_t seq_length = 1024;               // tokens per sample
  std::int64_t max_position_embeddings = 1024;  // rows of wpe
  std::int64_t vocab_size = 50257;              // as published: parameters and FLOPs count these rows
  std::int64_t padded_vocab_size = 50257;       // rows of wte as allocated (make_vocab_size_divisible_by)

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

// "gpt2-124m", "gpt2-1558m", "gpt3-175b", … ; throws Error(input) naming the nearest preset.
Transformer preset(const std::string& name);
std::vector<std::string> preset_names();

// One learnable array. `layer` is -1 outside the layers. Order of `parameters()` is registration order: wte, wpe, layers,
// final norm; gradients become ready in about the reverse of it.
struct Parameter {
  std::string name;  // within a layer: "qkv.weight"; full_name() adds "h.<layer>."
  std::int64_t layer = -1;
  std::int64_t rows = 1, cols = 1;
  bool decayed = false;  // weight decay applies to matrices only (GPT-2, nanoGPT)
  std::int64_t elements() const { return rows * cols; }
  std::string full_name() const { return layer < 0 ? name : "h." + std::to_string(layer) + "." + name; }
};
// Shapes are [out, in] (PyTorch's Linear). Names: wte.weight [padded V,H], wpe.weight [P,H]; per layer ln_1.weight,
// ln_1.bias, qkv.weight [3H,H], qkv.bias, proj.weight [H,H], proj.bias, ln_2.weight, ln_2.bias, fc1.weight [F,H], fc1.bias,
// fc2.weight [H,F], fc2.bias; ln_f.weight, ln_f.bias. Vectors have rows = 1.
std::vector<Parameter> parameters(const Transformer& model);

// Distinct learnable numbers, vocab not padded, tied embedding counted once. GPT-2 124M: 124,439,808.
std::int64_t parameter_count(const Transformer& model);

// FLOPs of one forward and backward pass over one sequence of seq_length tokens.
// Convention (docs/mfu.md): GEMMs and attention matmuls count 2·m·n·k; backward is twice forward; attention is causal, so
// its matmuls count half; the LM head counts; embedding look-ups, norms and elementwise work do not.
struct Flops {
  double model = 0;          // what MFU counts
  double hardware = 0;       // what HFU counts: what the schedule executes, with recompute; attention as executed
  double model_full_attention = 0;  // the same as `model` without the causal half: Megatron's published convention
};
Flops training_flops_per_sequence(const Transformer& model);

}  // namespace stretto
