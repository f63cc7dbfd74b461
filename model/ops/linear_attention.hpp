#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// Works of linear attention and state spaces (gated delta rule, arXiv 2412.06464; Mamba-2, arXiv 2405.21060), by the
// rules of model/schedule/work.hpp. Rows are tokens of whole sequences, one sequence after the other.

// y = SiLU(c): each channel of c is a causal convolution of its own over the tokens of a sequence, of `width` taps;
// the last tap is the token's own, and before a sequence are zeros. A bias is added before the SiLU.
// forward: x[rows,channels] R, weight[channels,width] R, (bias[1,channels] R), y W.
// dgrad:   dy R, x R, weight R, (bias R), dx W.
// wgrad:   dy R, x R, weight R, (bias R), dweight A, (dbias[1,channels] A).
struct ShortConv {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, channels = 0, seq = 0, width = 4;
  bool bias = false;

  static constexpr const char* kKind = "short_conv";
  static constexpr std::array kFields = {"pass", "rows", "channels", "seq", "width", "bias"};
  bool operator==(const ShortConv&) const = default;
};

// Two numbers of a token and head of linear attention: `rate` is how much of the token the state takes, and e^decay how
// much it keeps of what came before.
// step = softplus(raw_decay + dt_bias) and decay = −exp(a_log) · step, which is never positive. With own_rate the rate
// is sigmoid(raw_rate) (the gated delta rule's β); otherwise it is step (Mamba-2's Δ), and there is no raw_rate.
// forward: (raw_rate[rows,heads] R), raw_decay[rows,heads] R, a_log[1,heads] R, dt_bias[1,heads] R, rate[rows,heads] W,
//          decay[rows,heads] W.
// dgrad:   drate R, ddecay R, (raw_rate R), raw_decay R, a_log R, dt_bias R, (draw_rate W), draw_decay W.
// wgrad:   drate R, ddecay R, raw_decay R, a_log R, dt_bias R, da_log A, ddt_bias A.
struct LinearGates {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, heads = 0;
  bool own_rate = false;

  static constexpr const char* kKind = "linear_gates";
  static constexpr std::array kFields = {"pass", "rows", "heads", "own_rate"};
  bool operator==(const LinearGates&) const = default;
};

// Linear attention: each head has a state S[key_dim,value_dim], zero before a sequence. A token makes of it, with q and
// k of key head h / (heads / key_heads),
//   S ← e^decay · S;   u = rate · (v − Sᵀk) with `delta`, else rate · v;   S ← S + k uᵀ;   o = scale · Sᵀq (+ skip ·
//   v).
// With `delta` this is the gated delta rule, without it Mamba-2's state space (q = C, k = B, v = x, skip = D).
// unit_keys: q and k of a head are divided by sqrt(Σ x² + 1e-6) first. Kernels take kLinearChunk tokens at once, which
// changes nothing but rounding. States of chunks are computed again by the gradient and kept by nobody.
// forward: q[rows,key_heads·key_dim] R, k R, v[rows,heads·value_dim] R, rate[rows,heads] R, decay[rows,heads] R,
//          (skip[1,heads] R), o[rows,heads·value_dim] W.
// dgrad:   q R, k R, v R, rate R, decay R, (skip R), do R, dq W, dk W, dv W, drate W, ddecay W.
// wgrad:   v R, do R, dskip[1,heads] A; only with skip.
constexpr std::int64_t kLinearChunk = 64;
struct LinearAttention {
  Pass pass = Pass::forward;
  std::int64_t batch = 0, heads = 0, key_heads = 0, seq = 0, key_dim = 0, value_dim = 0;
  bool delta = false, unit_keys = false, skip = false;
  double scale = 1;

  std::int64_t rows() const { return batch * seq; }
  std::int64_t key_cols() const { return key_heads * key_dim; }
  std::int64_t value_cols() const { return heads * value_dim; }
  static constexpr const char* kKind = "linear_attention";
  static constexpr std::array kFields = {"pass",      "batch", "heads",     "key_heads", "seq",  "key_dim",
                                         "value_dim", "delta", "unit_keys", "skip",      "scale"};
  bool operator==(const LinearAttention&) const = default;
};

// An RMS norm of each of `groups` runs of `cols` columns of a row, and a gate. y = norm(x) · weight · SiLU(z), where
// all groups have one weight (the gated delta rule's); with gate_first y = norm(x · SiLU(z)) · weight, where each group
// has weights of its own (Mamba-2's). norm(x) = x / sqrt(mean x² + epsilon). The gradient computes the norm again.
// forward: x[rows,groups·cols] R, z R, weight R, y W; weight is [1,cols], with gate_first [1,groups·cols].
// dgrad:   dy R, x R, z R, weight R, dx W, dz W.
// wgrad:   dy R, x R, z R, dweight A.
struct GatedNorm {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, groups = 1, cols = 0;
  bool gate_first = false;
  double epsilon = 1e-5;

  std::int64_t weights() const { return gate_first ? groups * cols : cols; }
  static constexpr const char* kKind = "gated_norm";
  static constexpr std::array kFields = {"pass", "rows", "groups", "cols", "gate_first", "epsilon"};
  bool operator==(const GatedNorm&) const = default;
};

OperandList operands(const ShortConv& work);
OperandList operands(const LinearGates& work);
OperandList operands(const LinearAttention& work);
OperandList operands(const GatedNorm& work);
std::string sizes_text(const ShortConv& work);
std::string sizes_text(const LinearGates& work);
std::string sizes_text(const LinearAttention& work);
std::string sizes_text(const GatedNorm& work);
double counted_flops(const ShortConv& work);
double counted_flops(const LinearAttention& work);

template <class W>
concept OfLinearAttention = std::is_same_v<W, ShortConv> || std::is_same_v<W, LinearGates> ||
    std::is_same_v<W, LinearAttention> || std::is_same_v<W, GatedNorm>;

}  // namespace stretto
