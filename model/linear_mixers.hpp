#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

// The gated delta rule (Yang et al., arXiv 2412.06464; Qwen3-Next), in place of attention in some layers: one product
// makes q, k, v, the gate z and two numbers of each head; q, k and v go through a short convolution. Fields are
// Megatron-LM's options.
struct GatedDelta {
  // {n}: every layer but each n-th one, counted from 1; a longer list has 0 or 1 for each layer; empty: no layer.
  std::vector<std::int64_t> linear_attention_freq = {};
  std::int64_t linear_conv_kernel_dim = 4;  // taps of the convolution
  std::int64_t linear_key_head_dim = 128, linear_value_head_dim = 128;
  std::int64_t linear_num_key_heads = 16, linear_num_value_heads = 32;

  bool any() const { return !linear_attention_freq.empty(); }
  bool is_in(std::int64_t layer) const {
    if (linear_attention_freq.size() == 1) return (layer + 1) % linear_attention_freq[0] != 0;
    return any() && layer < static_cast<std::int64_t>(linear_attention_freq.size()) &&
           linear_attention_freq[static_cast<std::size_t>(layer)] != 0;
  }
  std::int64_t keys() const { return linear_num_key_heads * linear_key_head_dim; }
  std::int64_t values() const { return linear_num_value_heads * linear_value_head_dim; }
  std::vector<std::int64_t> conv_parts() const { return {keys(), keys(), values()}; }  // channels
  // Rows of in_proj.weight: q, k, v, z, and a rate and a decay of each head.
  std::vector<std::int64_t> in_parts() const {
    return {keys(), keys(), values(), values(), linear_num_value_heads, linear_num_value_heads};
  }
  bool operator==(const GatedDelta&) const = default;
};

// Mamba-2 (Dao and Gu, arXiv 2405.21060; Nemotron-H, arXiv 2504.03624): one product makes the gate z, x, B, C and the
// step of each head; x, B and C go through a short convolution of four taps with a bias. B and C are shared by the
// heads of a group. Fields are Megatron-LM's options.
struct Mamba {
  // A letter for each layer, which has then one sublayer: M Mamba-2, * attention, - an MLP, E experts; "": every layer
  // has a mixer and an MLP.
  std::string hybrid_layer_pattern = {};
  std::int64_t mamba_state_dim = 128, mamba_head_dim = 64, mamba_num_groups = 8, mamba_num_heads = 64;
  static constexpr std::int64_t kConvTaps = 4;  // Megatron-LM's MambaMixer has no option for it

  bool any() const { return hybrid_layer_pattern.find('M') != std::string::npos; }
  char letter(std::int64_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return at < hybrid_layer_pattern.size() ? hybrid_layer_pattern[at] : ' ';
  }
  std::int64_t inner() const { return mamba_num_heads * mamba_head_dim; }
  std::int64_t shared() const { return mamba_num_groups * mamba_state_dim; }              // elements of B, and of C
  std::vector<std::int64_t> conv_parts() const { return {inner(), shared(), shared()}; }  // channels
  // Rows of in_proj.weight: z, x, B, C, the heads' steps.
  std::vector<std::int64_t> in_parts() const { return {inner(), inner(), shared(), shared(), mamba_num_heads}; }
  bool operator==(const Mamba&) const = default;
};

}  // namespace stretto
