#pragma once
#include <cstdint>

namespace stretto::cuda {

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

}  // namespace stretto::cuda
