#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/lower/blocks.hpp"

namespace stretto {

// Writes the operations of one rank's blocks, so that a block reads like the model's equations. T = tokens of a
// micro-batch; R = this rank's tokens of the residual stream: T/tp with sequence parallelism, else T. Layers are cut
// over tp as in Megatron-LM (Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198).
//
// It writes the plain schedule: the operations of a block run one after the other, whatever their lanes. A name stands
// for one operation: a block that has the same as one before it has that one. References are borrowed and must outlive
// this.
class BlockWriter {
 public:
  BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters, LaneId compute);

  // `weights_apart`: the weight gradients of linear layers are put off into a separate block, which end_weights() makes
  // after end(). The caller must keep what they read, output gradients included, until that block has run.
  // `suffix` is added to the names of operations.
  void begin(const std::string& name, bool weights_apart = false, const std::string& suffix = "");
  BlockId end();
  BlockId end_weights(const std::string& name);

  void op(const std::string& name, Phase phase, Work work, std::vector<Access> accesses);
  void communicate(const std::string& name, Phase phase, const Group& group, CollectiveKind kind, std::int64_t elements,
                   std::vector<Access> accesses);
  // A message round the ring of context parallelism, `offset` places on, and the one that comes: at the same time, so
  // that no rank waits for another to receive.
  void exchange(const std::string& name, const std::string& suffix, Phase phase, const Group& ring, int offset,
                View sent, View came);

  // Activations; with `layers` > 1 there is one instance a layer, kept until that layer's backward.
  TensorId activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers);
  // The same for activations that may be recomputed: layers that recompute theirs before backward share instances.
  struct Role {
    bool is_input = false;           // the layer's input, kept where a group of recomputed layers begins
    bool is_core = false;            // attention's output, and what it keeps
    bool is_statistics = false;      // row statistics, kept in the accumulation type
    bool is_mask = false;            // of dropout, i32
    bool is_light = false;           // made again by Recompute::Granularity::selective_op
    std::vector<bool> layers = {};   // [layer] that have it; empty: all
    std::vector<bool> passing = {};  // [layer] whose pass uses it up, and which share one; empty: none
  };
  TensorId recomputable(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers, Role role);
  // A copy of a block with `suffix` on the names of its operations. Waits are copied too.
  BlockId copy(BlockId block, const std::string& name, const std::string& suffix);
  // With weights apart: an output gradient that B makes and W reads, of the shape of `activation`, for each layer and
  // slot. No backward pass of a micro-batch but its own reads that activation, and slots are used in turn, so it lies
  // in the activation's storage of the slot before (PipelineOrder::slots). Where layers share the activation it has
  // storages of its own.
  TensorId kept_gradient(const std::string& name, TensorId activation);
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1);
  // Storages that kinds of layers have for their workspaces: the first of each kind lie in the first, and so on. Layers
  // run one after the other.
  struct Pool {
    std::vector<StorageId> storages = {};
    std::size_t taken = 0;  // by the kind at hand
  };
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots, Pool& pool);
  Dtype statistics_type() const { return accumulation_of(dtype_); }
  // A tensor on storage that exists already.
  TensorId family(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                  std::int64_t slots, std::vector<TensorPlace> places);
  View act(TensorId tensor, const Expr& layer = 0) const { return whole(schedule_, tensor, layer, slot_); }
  View work(TensorId tensor) const { return whole(schedule_, tensor); }
  View parameter(const std::string& name, const Expr& layer = 0) const;
  View gradient(const std::string& name, const Expr& layer = 0) const;

  std::int64_t tokens() const { return shape_.tokens(); }
  std::int64_t residual_rows() const { return shape_.sequence_parallel ? tokens() / shape_.tp.size : tokens(); }
  std::int64_t norm_stats() const { return has_beta() ? 2 : 1; }  // statistics a row that a norm keeps for its gradient

  // All-gathers this rank's `part` [R,cols] to [T,cols]; returns `part` itself when R = T. The result is valid until
  // the next call.
  View gathered(const std::string& name, Phase phase, View part);
  // The sum of `partial` [T,cols] over the tensor-parallel ranks: all-reduced in place, or with sequence parallelism
  // reduce-scattered into `part` [R,cols]. Returns the view that has it.
  View summed(const std::string& name, Phase phase, View partial, View part);

  // Linear layers with weight [out, in] (sizes of this rank's part): y[T,out] = x[T,in] · Wᵀ. A column-parallel layer
  // adds its bias; that of a row-parallel layer is added once, after the sum, by residual(). `gelu_of_y`: output of the
  // GELU epilogue; absent: no epilogue.
  void column_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                      std::optional<View> gelu_of_y = {});
  // A part of it: `out` rows of the weight of `layer` from `first` on.
  void column_part_forward(const std::string& name, const std::string& layer, std::int64_t first, std::int64_t in,
                           std::int64_t out, View x, View y);
  // `residual`: y is residual + x · Wᵀ + bias in one operation, and residual() is not called. `kind` is added to the
  // operation's name.
  void row_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                   std::optional<View> residual = {}, const std::string& kind = "");
  // dx[T,in] = dy[T,out] · W;  dW[out,in] += dyᵀ · x;  db[out] += Σ dy over this rank's rows.
  // Column: `x` has this rank's rows, and `dx` is summed into `dx_part` (see summed); returns the view that has the
  // sum.
  // Without `sums_bias` db is another operation's.
  View column_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy, View x, View dx,
                       View dx_part, const std::string& weight, bool layered = true, bool sums_bias = true);
  // `before_gelu`: input of the GELU before this layer, when dx is to be the gradient of that input.
  // `bias_before_gelu`: then, unless "", the bias whose gradient Σ dx is added to.
  void row_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy_part, View x, View dx,
                    std::optional<View> before_gelu = {}, const std::string& bias_before_gelu = "");

  // c[R,H] = a + dropout(b + bias of the row-parallel layer before).
  void residual(const std::string& name, const std::string& layer, View a, View b, View c, DropoutSite site);
  // c[R,H] = dropout(b); only with hidden_dropout.
  void dropout(const std::string& name, View b, View c, DropoutSite site);
  // The gradient of dropout's input, from `dc`, that of its output: written to `db`; `dc` itself without
  // hidden_dropout.
  View dropped(const std::string& name, View dc, View db, DropoutSite site);
  bool drops() const { return shape_.model.hidden_dropout > 0; }
  View dropout_key() const;  // where anything drops
  // Attention on whole sequences, forward or dgrad; the dropout key is appended to `accesses`.
  void attention(const std::string& name, Pass pass, std::vector<Access> accesses);
  // Over the columns of x, or with `heads` over those of each of so many heads.
  void norm_forward(const std::string& name, View x, View y, View stats, const Expr& layer, std::int64_t heads = 1);
  // `dx` is accumulated into when it already holds the residual branch's gradient.
  void norm_backward(const std::string& name, View dy, View x, View stats, Access dx, const Expr& layer,
                     std::int64_t heads = 1);
  // Replaces logits by their gradient and adds to `loss`.
  void cross_entropy(View logits, View targets, View loss);
  // Rotates q and k in place; does nothing with learned positions.
  void rope(const std::string& name, Phase phase, Pass pass, View qkv);

 private:
  // dW += dyᵀ · x and db += Σ dy_bias: one operation when `dy_bias` is `dy` and bias_gradient_fusion is on.
  struct WeightGradient {
    std::string name;
    std::int64_t in = 0, out = 0;
    View dy, x;
    std::string weight;
    Expr layer;
    bool has_bias = false;
    View dy_bias;
    bool gathers_dy = false;  // when put off: this rank has only its rows of dy; otherwise of x
  };
  void write_or_put_off(WeightGradient gradient);
  void write_weight_gradient(const WeightGradient& gradient);
  void add(Block& block, Operation operation);
  // Storages of a family by home (LayerSlots) and slot.
  using HomeStorages = std::map<std::int64_t, std::map<std::int64_t, StorageId>>;
  // Appends a place for each slot of a layer to `places`. `storages` has those of the layers before.
  void add_places(std::vector<TensorPlace>& places, const std::string& name, Dtype dtype, std::int64_t elements,
                  std::int64_t layer, HomeStorages& storages);
  bool has_beta() const { return shape_.model.normalization == Normalization::layer_norm; }
  Work norm(Pass pass, const View& x, std::int64_t heads) const;
  Dropout hidden_dropout(Pass pass, DropoutSite site) const;
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
  std::string suffix_;
  std::map<std::string, OpId> written_;  // operations by their names
  std::vector<bool> is_beside_;          // [operation of the block] runs beside the one before it
  bool weights_apart_ = false;
  std::vector<WeightGradient> put_off_;
  TensorId gathered_ = 0;     // [T,H] with sequence parallelism
  TensorId dropout_key_ = 0;  // [layer][micro-batch], where anything drops
};

}  // namespace stretto
