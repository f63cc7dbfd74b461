#pragma once
#include <cstdint>

#include "model/ops/codes.hpp"

namespace stretto {

// Low precision of the layers' linear products (qkv, proj, fc1, fc2), with the names of Megatron-LM at d98e8a64.
// Recipes are TransformerEngine's at d0067d0 (docs/low-precision.md).
struct LowPrecision {
  enum class Fp8Format : std::uint8_t {
    none,
    e4m3,    // all codes are e4m3
    hybrid,  // gradients of outputs are e5m2
  };
  enum class Fp8Recipe : std::uint8_t { delayed, tensorwise, blockwise, mxfp8 };
  enum class AmaxAlgo : std::uint8_t { most_recent, max };
  enum class Fp4Format : std::uint8_t { none, e2m1 };
  enum class Fp4Recipe : std::uint8_t { nvfp4 };
  enum class WireDtype : std::uint8_t { bf16, mxfp8 };

  Fp8Format fp8_format = Fp8Format::none;
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;
  std::int64_t fp8_margin = 0;            // delayed: scales are smaller by 2^margin
  std::int64_t fp8_amax_history_len = 1;  // delayed: passes
  AmaxAlgo fp8_amax_compute_algo = AmaxAlgo::most_recent;
  bool fp8_wgrad = true;          // weight gradients are products of codes too
  bool tp_only_amax_red = false;  // delayed: amaxes are reduced over tp · cp, otherwise over tp · cp · dp
  bool first_last_layers_bf16 = false;
  std::int64_t num_layers_at_start_in_bf16 = 1, num_layers_at_end_in_bf16 = 1;  // with first_last_layers_bf16
  bool reuse_grad_buf_for_mxfp8_param_ag = false;
  Fp4Format fp4_format = Fp4Format::none;
  Fp4Recipe fp4_recipe = Fp4Recipe::nvfp4;
  bool fp4_param_gather = false;
  // Products take both factors only in rows along the axis of their sum, as fp8 of GPUs before Blackwell (compute
  // capability 10.0): transposed copies of codes are in memory.
  bool fp8_transposes = false;
  // Types in which rows of experts are on their way: forward those that dispatch sends, and backward the gradients that
  // the backward pass of combine sends. mxfp8: codes of e4m3 with their scales, which the rows' tokens become.
  WireDtype moe_dispatch_fwd_dtype = WireDtype::bf16, moe_combine_bwd_dtype = WireDtype::bf16;

  bool operator==(const LowPrecision&) const = default;
  bool is_on() const { return fp8_format != Fp8Format::none || fp4_format != Fp4Format::none; }
  // Returns whether products of the layer, one of `layers`, are of codes.
  bool acts_on(std::int64_t layer, std::int64_t layers) const {
    return is_on() && !(first_last_layers_bf16 &&
                        (layer < num_layers_at_start_in_bf16 || layer >= layers - num_layers_at_end_in_bf16));
  }
};
const char* name_of(LowPrecision::Fp8Format format);  // "none", "e4m3", "hybrid"
const char* name_of(LowPrecision::Fp8Recipe recipe);  // "delayed", …
const char* name_of(LowPrecision::AmaxAlgo algo);     // "most_recent", "max"
const char* name_of(LowPrecision::Fp4Format format);  // "none", "e2m1"
const char* name_of(LowPrecision::Fp4Recipe recipe);  // "nvfp4"
const char* name_of(LowPrecision::WireDtype dtype);   // "bf16", "mxfp8"

// The treatment by a recipe of the factors of a layer's products: X (input), W (weight) and dY (gradient of the
// output).
struct LowPrecisionRules {
  enum class Recipe : std::uint8_t { none, delayed, tensorwise, blockwise, mxfp8, nvfp4 };
  Recipe recipe = Recipe::none;
  Dtype forward = Dtype::e4m3, backward = Dtype::e4m3;  // formats of X and W, and of dY
  // Scalings of X and dY, and of W.
  Scaling activations = Scaling::none, weights = Scaling::none;
  bool transposes = false;  // products take factors only in rows along the axis of their sum
  std::int64_t align = 1;   // rows and columns of a factor are multiples of this
  // Rows of experts go to the experts' ranks as codes: forward, and their gradients backward.
  bool sends_rows = false, sends_gradients = false;

  bool is_on() const { return recipe != Recipe::none; }
  bool per_tensor() const { return activations == Scaling::tensor; }
  bool is_delayed() const { return recipe == Recipe::delayed; }
};
const char* name_of(LowPrecisionRules::Recipe recipe);  // "none", "delayed", …
// Returns the rules on a GPU of this compute capability; 0: another device. On Blackwell products of `blockwise` are
// MXFP8's (TransformerEngine at d0067d0, pytorch/csrc/extensions/gemm.cpp:312).
LowPrecisionRules rules_of(const LowPrecision& precision, double compute_capability);

}  // namespace stretto
