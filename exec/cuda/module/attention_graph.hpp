#pragma once
#include <cstdint>

#include "exec/cuda/module/cudnn_graph.hpp"

namespace stretto::cuda {

// The tensors of attention's graphs that have memory, by their ids in cuDNN: operands of Attention
// (model/schedule/work.hpp), f32 scalars by value, and further tensors that the graphs need.
enum class AttentionTensor : std::int64_t {
  q = 1,
  k,
  v,
  o,
  stats,   // log-sum-exps
  scale,   // scale of the scores, by value
  hidden,  // the value of a masked score, by value; with is_causal
  d_o,     // from here on only in the gradient
  dq,
  dk,
  dv,
  row_sums,    // f32[b,h,s,1]: Σ dO ∘ O, times kept_share
  dq_sums,     // f32[b,h,s,d]
  kept_share,  // 1 − dropout, by value
  seed,        // i64[1] each, with dropout
  offset,
  drop_scale,  // 1 / (1 − dropout), by value
};

// Shapes and strides of one attention: q, k and v in rows of `qkv_ld` elements, o in rows of `out_ld`.
struct AttentionShape {
  std::int64_t b = 0, h = 0, hk = 0, s = 0, d = 0, qkv_ld = 0, out_ld = 0;
  bool is_causal = true;
  double dropout = 0;
};

// Adds cuDNN's graph of the forward pass or the gradient. Throws CudnnError.
void add_attention(CudnnGraph& graph, const AttentionShape& shape, bool is_forward);

}  // namespace stretto::cuda
