#pragma once
#include <string>
#include <vector>

#include "model/lower/block_writer.hpp"

namespace stretto {

// Attention of one layer under context parallelism, between the packed q, k and v of a rank's tokens and the output of
// these tokens. Of the cp ranks, `exchange` neighbours swap tokens for heads (DeepSpeed-Ulysses, arXiv 2309.14509), and
// `ring` such groups send keys and values round a ring (ring attention, arXiv 2310.01889) or gather all of them; one of
// the two sizes is 1, unless the layer's cp_comm_type is "a2a+p2p". There is one object for each kind of layer. Tokens
// lie in zigzag (model/schedule/sequence_parts.hpp), so that all ranks multiply equally much at every step.
//
// Ring, n groups, rank r, forward (in TransformerEngine's order, as backward is). kv(i) belongs to group (r − i) mod n:
//   send_i, recv_i = kv(i) to r + 1, kv(i + 1) from r − 1;  A_i = attention of the rank's queries with kv(i);  merge
// Backward begins with the kv that arrived last, of group (r + 1 + i) mod n, and goes the other way, so that a rank's
// own dkv arrives when it is needed:
//   send_i, recv_i = kv(i) and, from i = 1 on, the sum of its dkv so far, to r − 1, and those of kv(i + 1) from r + 1;
//   D_i = gradients of q and kv(i);  sum_i = received sum + this rank's dkv, i ≥ 1; at the last step packed with Σ dq
class ContextAttention {
 public:
  // [layer] whose qkv no operation reads after attention's forward pass: the exchanged heads are kept instead, unless
  // they are recomputed from qkv.
  static std::vector<bool> layers_passing_qkv(const BlockShape& shape);

  // Tensors that kinds share: `qkv`[T, qkv_size / tp], a family over all layers, and storages of workspaces.
  struct Shared {
    TensorId qkv = 0;
    BlockWriter::Pool forward = {}, backward = {};
  };
  // Adds activations and workspaces for layers of a kind. References are borrowed and must outlive this object, except
  // `shared`.
  ContextAttention(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, std::size_t kind, Shared& shared);

  // Writes attention from qkv to `out`[T, H / tp]. `suffix` is added to the names of operations.
  void forward(const View& out, const std::string& suffix);
  // Writes the gradient from `dout` to `dqkv`, both of the rank's tokens. `out` is the result of forward.
  void backward(const View& out, const View& dout, const View& dqkv);

 private:
  bool exchanges() const { return kind_.exchange.exists(); }
  View qkv() const { return w_.act(qkv_, Coord::layer); }
  // Return names of tensors that only this kind has.
  std::string named(const std::string& name) const { return "attention" + kind_.suffix + name; }
  std::string gradient_named(const std::string& name) const { return "d_attention" + kind_.suffix + name; }
  void pack(const std::string& name, Phase phase, const View& qkv, const View& kv);
  // Packs the terms of dq and one or two dkv into `dqkv`.
  void join(std::vector<View> dkvs, const View& dqkv);
  Attention attention(Pass pass, const Expr& first_key_part, std::int64_t key_parts) const;
  void attend(const std::string& name, const Attention& work, std::vector<Access> accesses);
  void core_forward(const View& qkv, const View& out, const std::string& suffix);
  void core_backward(const View& qkv, const View& out, const View& dout, const View& dqkv);
  void ring_forward(const View& qkv, const View& out, const std::string& suffix);
  void ring_backward(const View& qkv, const View& out, const View& dout, const View& dqkv);
  void gather_keys(const View& qkv, Phase phase, const std::string& suffix);
  void swap(const std::string& name, Phase phase, const View& from, const View& to);
  void split(const std::string& name, Phase phase, Pass pass, std::int64_t kv_heads, const View& from, const View& to);
  View half_of_slot(std::int64_t slot, bool is_gradient) const;
  View whole_slot(std::int64_t slot) const;
  View part_of(TensorId parts, std::int64_t part, std::int64_t rows) const;

  Schedule& schedule_;
  BlockWriter& w_;
  const BlockShape& shape_;
  const ContextKind& kind_;
  // Sizes of this rank: its tokens, and rows of attention itself; its heads; columns of q, and of k and v.
  const std::int64_t tokens_, rows_, heads_, kv_heads_, head_dim_, q_cols_, kv_cols_;
  const std::int64_t steps_;  // steps of the ring
  TensorId qkv_ = 0, lse_ = 0;
  TensorId qkv_heads_ = 0, out_heads_ = 0;  // with an exchange: input and output of attention
  TensorId sent_ = 0, received_out_ = 0, d_sent_ = 0, d_out_heads_ = 0, d_qkv_heads_ = 0, d_received_ = 0;
  TensorId kv_last_ = 0;                   // with a ring: the keys and values that arrived last
  TensorId kv_ = 0, outs_ = 0, lses_ = 0;  // slots of forward; results of each step
  TensorId kv_dkv_ = 0, dkv_ = 0, dqs_ = 0;
  TensorId kv_all_ = 0, dkv_all_ = 0;  // all keys and values, and their gradient
};

}  // namespace stretto
