#pragma once
#include <string>

#include "model/lower/block_writer.hpp"

namespace stretto {

// The attention core as Megatron-LM wrote it before fused kernels: products, softmax and dropout are operations of
// their own, which hand on whole matrices of scores. Kept for backward are what its modules keep: the probabilities,
// and with dropout its mask and result (5 a s² b bytes of Korthikanti et al., arXiv 2205.05198, 4.1). References are
// borrowed and must outlive this.
class UnfusedAttention {
 public:
  // Adds activations and workspaces.
  UnfusedAttention(BlockWriter& writer, const BlockShape& shape);

  // `out` of `qkv`, both as Attention has them; `suffix` on the names of operations.
  void forward(const View& qkv, const View& out, const std::string& suffix);
  // `d_qkv` of `d_out`, the gradient of `out`.
  void backward(const View& qkv, const View& d_out, const View& d_qkv);

 private:
  AttentionProduct product(AttentionFactor factor) const;
  Dropout dropout(Pass pass) const;
  bool drops() const { return shape_.model.attention_dropout > 0; }
  View of_layer(TensorId tensor) const { return w_.act(tensor, Coord::layer); }

  BlockWriter& w_;
  const BlockShape& shape_;
  // This rank's heads.
  const std::int64_t heads_, kv_heads_, rows_;
  TensorId probabilities_ = 0, mask_ = 0, dropped_ = 0;
  TensorId scores_ = 0;                    // of forward, recomputed or not
  TensorId gradient_ = 0, d_dropped_ = 0;  // of the probabilities, then the scores; of dropout's result
};

}  // namespace stretto
