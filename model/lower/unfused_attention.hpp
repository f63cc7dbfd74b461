#pragma once
#include <string>

#include "model/lower/block_writer.hpp"

namespace stretto {

// The attention core as Megatron-LM wrote it before fused kernels: products, softmax and dropout are separate
// operations, which pass on whole matrices of scores. Kept for backward are the tensors that Megatron-LM's modules
// keep: the probabilities, and with dropout its mask and result (5 a s² b bytes of Korthikanti et al., arXiv
// 2205.05198, 4.1). References are borrowed and must outlive this object.
class UnfusedAttention {
 public:
  // Adds activations and workspaces.
  UnfusedAttention(BlockWriter& writer, const BlockShape& shape);

  // Writes `out` from `qkv`, both in Attention's layout; `suffix` is added to the names of operations.
  void forward(const View& qkv, const View& out, const std::string& suffix);
  // Writes `d_qkv` from `d_out`, the gradient of `out`.
  void backward(const View& qkv, const View& d_out, const View& d_qkv);

 private:
  AttentionProduct product(AttentionFactor factor) const;
  Dropout dropout(Pass pass) const;
  bool drops() const { return shape_.model.attention_dropout > 0; }
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }

  BlockWriter& w_;
  const BlockShape& shape_;
  // This rank's sizes.
  const std::int64_t heads_, kv_heads_, rows_;
  TensorId probabilities_ = 0, mask_ = 0, dropped_ = 0;
  TensorId scores_ = 0;  // scores of forward, recomputed or not
  // gradient of the probabilities, then of the scores; gradient of dropout's result
  TensorId gradient_ = 0, d_dropped_ = 0;
};

}  // namespace stretto
