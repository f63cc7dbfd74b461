#pragma once
#include <string>
#include <vector>

#include "model/lower/block_writer.hpp"

namespace stretto {

// Attention of one layer under context parallelism, between the packed q, k and v of a rank's tokens and the output of
// its tokens. Of the cp ranks, `exchange` neighbours swap tokens for heads (DeepSpeed-Ulysses, arXiv 2309.14509), and
// `ring` such groups pass keys and values round (ring attention, arXiv 2310.01889) or gather all of them; one of the
// two is 1, unless the layer's cp_comm_type is "a2a+p2p". There is one of this for each kind of layer. Tokens lie in
// zigzag (model/schedule/sequence_parts.hpp), so that all ranks multiply as much at every step.
//
// Ring, n groups, rank r, forward (TransformerEngine's, as backward is). kv(i) is that of group (r − i) mod n:
//   send_i, recv_i = kv(i) to r + 1, kv(i + 1) from r − 1;  A_i = attention of the rank's queries with kv(i);  merge
// Backward begins with the kv that came last, of group (r + 1 + i) mod n, and goes the other way, so that a rank's own
// dkv comes home as it is needed:
//   send_i, recv_i = kv(i) and, from i = 1 on, the sum of its dkv so far, to r − 1, and those of kv(i + 1) from r + 1;
//   D_i = gradients of q and kv(i);  sum_i = what came + this rank's dkv, i ≥ 1; at the last step packed with Σ dq
class ContextAttention {
 public:
  // [layer] whose qkv nobody reads behind attention's forward pass: the exchanged heads are kept instead, unless they
  // are to be made again from it.
  static std::vector<bool> layers_passing_qkv(const BlockShape& shape);

  // What kinds share: `qkv`[T, qkv_size / tp], a family over all layers, and storages of workspaces.
  struct Shared {
    TensorId qkv = 0;
    BlockWriter::Pool forward = {}, backward = {};
  };
  // Adds activations and workspaces for layers of a kind. References are borrowed and must outlive this, but for
  // `shared`.
  ContextAttention(Schedule& schedule, BlockWriter& writer, const BlockShape& shape, std::size_t kind, Shared& shared);

  // Reads qkv and writes `out`[T, H / tp]. Operations are named with the suffix.
  void forward(const View& out, const std::string& suffix);
  // From `dout` to `dqkv`, both as long as the rank's tokens. `out` is that of forward.
  void backward(const View& out, const View& dout, const View& dqkv);

 private:
  bool exchanges() const { return kind_.exchange.exists(); }
  View qkv() const { return w_.act(qkv_, Coord::layer); }
  // Names of what only this kind has.
  std::string named(const std::string& name) const { return "attention" + kind_.suffix + name; }
  std::string gradient_named(const std::string& name) const { return "d_attention" + kind_.suffix + name; }
  void pack(const std::string& name, Phase phase, const View& qkv, const View& kv);
  // Parts of dq and one or two dkv to `dqkv`.
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
  // A rank's: tokens, and rows of attention itself; heads of it; columns of q, and of k and v.
  const std::int64_t tokens_, rows_, heads_, kv_heads_, head_dim_, q_cols_, kv_cols_;
  const std::int64_t steps_;  // of the ring
  TensorId qkv_ = 0, lse_ = 0;
  TensorId qkv_heads_ = 0, out_heads_ = 0;  // with an exchange: what attention reads and writes
  TensorId sent_ = 0, received_out_ = 0, d_sent_ = 0, d_out_heads_ = 0, d_qkv_heads_ = 0, d_received_ = 0;
  TensorId kv_last_ = 0;                   // with a ring: the keys and values that came last
  TensorId kv_ = 0, outs_ = 0, lses_ = 0;  // forward's slots; what each step gives
  TensorId kv_dkv_ = 0, dkv_ = 0, dqs_ = 0;
  TensorId kv_all_ = 0, dkv_all_ = 0;  // gathered
};

}  // namespace stretto
