#pragma once
#include <cstdint>

#include "exec/cuda/module/attention_shape.hpp"
#include "exec/cuda/module/cudnn_graph.hpp"

namespace stretto::cuda {

// The tensors of attention's graphs that have memory, by their ids in cuDNN: operands of Attention
// (model/ops/attention.hpp), f32 scalars by value, and further tensors that the graphs need.
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
  row_sums,    // f32[b,h,queries,1]: Σ dO ∘ O, times kept_share
  dq_sums,     // f32[b,h,queries,d]
  kept_share,  // 1 − dropout, by value
  seed,        // i64[1] each, with dropout
  offset,
  drop_scale,  // 1 / (1 − dropout), by value
  queries,     // i32, by value, where is_shifted()
  keys,
};

// Adds cuDNN's graph of the forward pass or the gradient. Throws CudnnError.
void add_attention(CudnnGraph& graph, const AttentionShape& shape, bool is_forward);

}  // namespace stretto::cuda
