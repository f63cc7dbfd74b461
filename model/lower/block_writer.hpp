#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/lower/blocks.hpp"

namespace stretto {

// Writes the operations of one rank's blocks, so that a block reads like the model's equations. T = tokens of a
// micro-batch; R = those of the residual stream on this rank: T/tp with sequence parallelism, else T. Layers are cut
// over tp as Megatron-LM does it (Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198).
//
// What it writes is the plain schedule: everything in a block is one after the other, on whatever lanes.
class BlockWriter {
 public:
  BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters, LaneId compute);

  // `weights_apart`: the weight gradients of linear layers are left out, for a block of their own: end_weights() after
  // end(). Whoever calls that later keeps what they read, the gradients of outputs among it.
  void begin(const std::string& name, bool weights_apart = false);
  BlockId end();
  BlockId end_weights(const std::string& name);

  void op(const std::string& name, Phase phase, Work work, std::vector<Access> accesses);

  // Activation families; `layers` > 1 keeps one instance a layer until its backward.
  TensorId activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers);
  // The same for what recomputation is about: layers that compute it again before their backward share instances.
  struct Role {
    bool is_input = false;       // of the layer itself, which is kept where a group of layers begins
    bool is_core = false;        // of attention's output
    bool is_statistics = false;  // numbers about rows, kept in the type of sums
  };
  TensorId recomputable(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                        Role role = {.is_input = false, .is_core = false, .is_statistics = false});
  // A copy of a block under other names. Waits are copied too.
  BlockId copy(BlockId block, const std::string& name, const std::string& suffix);
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1);
  Dtype statistics_type() const { return accumulation_of(dtype_); }
  // A tensor of instances that exist already.
  TensorId family(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                  std::int64_t slots, std::vector<TensorPlace> places);
  View act(TensorId tensor, const Expr& layer = 0) const { return whole(schedule_, tensor, layer, slot_); }
  View work(TensorId tensor) const { return whole(schedule_, tensor); }
  View parameter(const std::string& name, const Expr& layer = 0) const;
  View gradient(const std::string& name, const Expr& layer = 0) const;

  std::int64_t tokens() const { return shape_.tokens(); }
  std::int64_t residual_rows() const { return shape_.sequence_parallel ? tokens() / shape_.tp : tokens(); }
  std::int64_t norm_stats() const { return has_beta() ? 2 : 1; }  // numbers a row that a norm keeps for its gradient

  // Rows of all ranks, [T,cols], from this rank's `part` [R,cols]; `part` itself where that is everything. The result
  // is good until the next call.
  View gathered(const std::string& name, Phase phase, View part);
  // The sum over tensor-parallel ranks of `partial` [T,cols]: in place, or with sequence parallelism this rank's rows
  // of it in `part` [R,cols]. Returns where it is.
  View summed(const std::string& name, Phase phase, View partial, View part);

  // Linear layers with weight [out, in] (sizes of this rank's part): y[T,out] = x[T,in] · Wᵀ. A column-parallel layer
  // adds its bias; that of a row-parallel layer is added once, after the sum, by residual(). `gelu_of_y`: where gelu(y)
  // goes when it is the product's epilogue.
  void column_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                      std::optional<View> gelu_of_y = {});
  // `residual`: y is residual + x · Wᵀ + bias in one operation, and residual() is not called.
  void row_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                   std::optional<View> residual = {});
  // dx[T,in] = dy[T,out] · W;  dW[out,in] += dyᵀ · x;  db[out] += Σ dy, of the rows that this rank answers for.
  // Column: `x` is the residual stream's, `dx` is summed into `dx_part` (see summed); returns where the sum is.
  View column_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy, View x, View dx,
                       View dx_part, const std::string& weight, bool layered = true);
  // `before_gelu`: what the layer's input was the GELU of, when dx is to be the gradient of that.
  void row_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy_part, View x, View dx,
                    std::optional<View> before_gelu = {});

  // c[R,H] = a + dropout(b + bias of the row-parallel layer before).
  void residual(const std::string& name, const std::string& layer, View a, View b, View c, DropoutSite site);
  // c[R,H] = dropout(b); only with hidden_dropout.
  void dropout(const std::string& name, View b, View c, DropoutSite site);
  // The gradient of what dropout was given, of `dc` behind it: in `db`, or `dc` itself without hidden_dropout.
  View dropped(const std::string& name, View dc, TensorId db, DropoutSite site);
  bool drops() const { return shape_.model.hidden_dropout > 0; }
  // Attention, forward or dgrad; accesses without the key.
  void attention(const std::string& name, Pass pass, std::vector<Access> accesses);
  void norm_forward(const std::string& name, View x, View y, View stats, const Expr& layer);
  // `dx` accumulates when the residual branch's gradient is already in it.
  void norm_backward(const std::string& name, View dy, View x, View stats, Access dx, const Expr& layer);
  // logits become their gradient, `loss` grows.
  void cross_entropy(View logits, View targets, View loss);
  // Turns q and k in place; nothing where positions are learned.
  void rope(const std::string& name, Phase phase, Pass pass, View qkv);

 private:
  // dW = dyᵀ · x and, of `dy_bias`, db: in one operation where that is `dy` and the fusion is on.
  struct WeightGradient {
    std::string name;
    std::int64_t in = 0, out = 0;
    View dy, x;
    std::string weight;
    Expr layer;
    bool has_bias = false;
    View dy_bias;
    bool gathers_dy = false;  // where it is put off: of which operand this rank has its rows only; else of x
  };
  void write_or_put_off(WeightGradient gradient);
  void write_weight_gradient(const WeightGradient& gradient);
  bool has_beta() const { return shape_.model.normalization == Normalization::layer_norm; }
  Work norm(Pass pass) const;
  Dropout hidden_dropout(Pass pass, DropoutSite site) const;
  View dropout_key() const;
  void add_dropout_keys();
  void collective(const std::string& name, Phase phase, CollectiveKind kind, std::int64_t elements,
                  std::vector<Access> accesses);

  Schedule& schedule_;
  const ParameterTensors& parameters_;
  const BlockShape& shape_;
  LaneId lane_;
  Dtype dtype_;
  Expr slot_;
  Block block_;
  bool weights_apart_ = false;
  std::vector<WeightGradient> put_off_;
  TensorId gathered_ = 0;     // [T,H] with sequence parallelism
  TensorId dropout_key_ = 0;  // [layer][micro-batch], where anything drops
};

}  // namespace stretto
