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
  row_sums,    // f32[b,h,queries,1]: Σ dO ∘ O, times kept_share
  dq_sums,     // f32[b,h,queries,d]
  kept_share,  // 1 − dropout, by value
  seed,        // i64[1] each, with dropout
  offset,
  drop_scale,  // 1 / (1 − dropout), by value
  queries,     // i32, by value, where is_shifted()
  keys,
};

// Elements between the rows of tokens, and between sequences.
struct AttentionStrides {
  std::int64_t ld = 0, sequence = 0;
};

// Shapes and strides of one attention, of queries that follow one another and keys that do: k and v in rows of `kv`, o
// and d_o in rows of `out`. With is_causal, the last query sees all keys, each query before it one key less; keys are
// then as many as queries, or more.
struct AttentionShape {
  std::int64_t b = 0, h = 0, hk = 0, queries = 0, keys = 0, d = 0;
  AttentionStrides q = {}, kv = {}, out = {}, dq = {}, dkv = {};  // the last two only in the gradient
  bool is_causal = true;
  double dropout = 0;

  bool is_shifted() const { return is_causal && keys != queries; }
};

// Adds cuDNN's graph of the forward pass or the gradient. Throws CudnnError.
void add_attention(CudnnGraph& graph, const AttentionShape& shape, bool is_forward);

}  // namespace stretto::cuda
