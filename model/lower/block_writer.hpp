#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/lower/blocks.hpp"

namespace stretto {

class QuantisedLinears;

// Writes the operations of one rank's blocks, so that a block reads like the model's equations. T = tokens of a
// micro-batch; R = this rank's tokens of the residual stream: T/tp with sequence parallelism, else T. Layers are cut
// over tp as in Megatron-LM (Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198).
//
// It writes the plain schedule: the operations of a block run one after the other, whatever their lanes. A name stands
// for one operation: a block that writes an operation with a known name reuses the operation of an earlier block.
// References are borrowed and must outlive this object.
class BlockWriter {
 public:
  BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters, LaneId compute);

  // Begins a block. With `weights_apart` the weight gradients of linear layers are deferred to a separate block, which
  // end_weights() makes after end(). The caller must keep the operands of deferred gradients, output gradients
  // included, until that block has run.
  void begin(const std::string& name, bool weights_apart = false);
  // Begins a block of operations of the forward pass that a backward pass runs again.
  void begin_recomputation(const std::string& name);
  // Begins a block of a backward pass of layers, which reads what it computes again in places of its own where a
  // forward pass may be concurrent.
  void begin_backward(const std::string& name, bool weights_apart = false);
  BlockId end();
  BlockId end_weights(const std::string& name);
  // Writes operations of the forward pass into a block of the backward pass, which runs the function `what` again, with
  // `suffix` after their names.
  template <class Write>
  void again(Recomputed what, const Write& write, const char* suffix = ".recompute") {
    const std::string of_block = std::exchange(suffix_, suffix);
    const Module module = module_;
    recomputed_ = what;
    write();
    recomputed_ = Recomputed::none;
    module_ = module;
    suffix_ = of_block;
  }
  // Operations that follow belong to the module; returns the one before.
  Module set_module(Module module) { return std::exchange(module_, module); }
  // Operations belong to the module for as long as the result lives.
  class Within {
   public:
    Within(BlockWriter& writer, Module module) : writer_(writer), before_(writer.set_module(module)) {}
    ~Within() { writer_.set_module(before_); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    BlockWriter& writer_;
    const Module before_;
  };
  // Operations that follow make codes, or scales of codes, of this factor.
  void set_codes_of(Factor factor) { codes_of_ = factor; }

  LaneId set_lane(LaneId lane) { return std::exchange(lane_, lane); }  // of operations that follow; returns the last
  void op(const std::string& name, Phase phase, Work work, std::vector<Access> accesses);
  // Appends a whole operation to the block, whatever module and suffix were set. `is_concurrent`: with the one before.
  void emit(Operation operation, bool is_concurrent = false);
  // Returns the workspace [T,cols] in which all rows are gathered in this block.
  View gathering_place(Phase phase, std::int64_t cols) const;
  // Adds to the gradient of a layer's weight; `reads` are the operands. Does nothing with a frozen base.
  void weight_gradient(const std::string& name, const Work& work, std::vector<Access> reads, const std::string& weight);
  void communicate(const std::string& name, Phase phase, const Group& group, CollectiveKind kind, std::int64_t elements,
                   std::vector<Access> accesses);
  void communicate(Operation operation);
  // Sends a message `offset` places on round the ring of context parallelism and receives the one that arrives. Both
  // are concurrent, so that no rank waits for another to receive.
  void exchange(const std::string& name, const std::string& suffix, Phase phase, const Group& ring, int offset,
                View sent, View came);

  // Adds an activation. With `layers` > 1 there is one instance for each layer, kept until that layer's backward pass.
  TensorId activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers);
  // How an activation may be recomputed: layers that recompute it before their backward pass share instances.
  struct Role {
    bool is_input = false;            // the layer's input, kept where a group of recomputed layers begins
    bool is_again = false;            // a backward pass computes it again for its own layer
    bool is_statistics = false;       // row statistics, kept in the accumulation type
    bool is_mask = false;             // mask of dropout, i32
    std::optional<Dtype> dtype = {};  // another type than the step's
    std::vector<bool> layers = {};    // [layer] that have the activation; empty: all
    std::vector<bool> again = {};     // [layer] of which a backward pass computes it again; empty: as is_again says
    // [layer] whose forward pass is the last reader, and which share one instance; empty: none
    std::vector<bool> passing = {};
    TensorRole role = TensorRole::none;
  };
  TensorId recomputable(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers, Role role);
  // Returns the activation in the places that it has in a backward pass: `activation` itself, unless begin_backward()
  // says otherwise.
  TensorId in_backward(TensorId activation) const {
    const auto own = of_backward_.find(activation);
    return own == of_backward_.end() ? activation : own->second;
  }
  // Copies the block of a layer's forward pass, with its waits, as one that a backward pass runs again. Names of its
  // operations get ".recompute".
  BlockId copy_to_recompute(BlockId block, const std::string& name);
  // With weights apart: adds an output gradient that B makes and W reads, in the shape of `activation`, for each layer
  // and slot. Only a micro-batch's own backward pass reads that activation, and slots are used in turn, so the gradient
  // lies in the activation's storage of the previous slot (PipelineOrder::slots). Where layers share the activation,
  // the gradient has storages of its own.
  // `with`: [layer] that have the gradient; empty: all.
  TensorId kept_gradient(const std::string& name, TensorId activation, const std::vector<bool>& with = {});
  // Adds an output gradient in the shape of `activation`, which only B reads: kept where W units compute weight
  // gradients, else a workspace; and the view by which the gradient is written and read.
  TensorId output_gradient(const std::string& name, TensorId activation, const std::vector<bool>& with = {});
  View read_by_weights(TensorId gradient) const {
    return shape_.weights_in_units ? act(gradient, Coord::layer) : work(gradient);
  }
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1);
  // Storages that all kinds of layers share for their workspaces: the first workspace of each kind lies in the first
  // storage, and so on. Layers run one after the other.
  struct Pool {
    std::vector<StorageId> storages = {};
    std::size_t taken = 0;  // number taken by the current kind
  };
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots, Pool& pool);
  Dtype statistics_type() const { return accumulation_of(dtype_); }
  // Adds an activation of the head, which its weight gradient reads. A deferred one needs an instance of its operands
  // for its own micro-batch; other micro-batches share instances by slot, as all activations do.
  View head_activation(const std::string& name, std::int64_t rows, std::int64_t cols);
  // Adds a tensor on storages that exist already.
  TensorId family(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                  std::int64_t slots, std::vector<TensorPlace> places);
  View act(TensorId tensor, const Expr& layer = 0) const { return whole(schedule_, tensor, layer, slot_); }
  View work(TensorId tensor) const { return whole(schedule_, tensor); }
  View parameter(const std::string& name, const Expr& layer = 0) const;
  View gradient(const std::string& name, const Expr& layer = 0) const;

  std::int64_t tokens() const { return shape_.tokens(); }
  std::int64_t residual_rows() const { return shape_.sequence_parallel ? tokens() / shape_.tp.size : tokens(); }
  // statistics for each row that a norm keeps for its gradient
  std::int64_t norm_stats() const { return has_beta() ? 2 : 1; }

  // All-gathers this rank's rows `part` [R,cols], with at most as many columns as H or a latent vector, to [T,cols];
  // returns `part` itself when R = T. The result is valid
  // until the next call.
  View gathered(const std::string& name, Phase phase, View part);
  // Sums `partial` [T,cols] over the tensor-parallel ranks: all-reduced in place, or with sequence parallelism
  // reduce-scattered into `part` [R,cols]. Returns the view with the sum.
  View summed(const std::string& name, Phase phase, View partial, View part);

  // Layers that are written next have products of codes, or with `active` false the registered linear layers' products
  // are of numbers beside layers with codes, and have other names. `linears` may be null.
  void set_codes(QuantisedLinears* linears, bool active) {
    codes_ = linears;
    in_codes_ = linears != nullptr && active;
  }
  bool in_codes() const { return in_codes_; }
  QuantisedLinears& codes() const { return *codes_; }  // with in_codes()
  // Returns the name of a linear layer in names of operations.
  std::string label(const std::string& linear) const;
  // Writes weight gradients now, or in the block of end_weights().
  void now_or_later(std::function<void()> write) {
    if (weights_apart_)
      put_off(std::move(write));
    else
      write();
  }
  bool weights_apart() const { return weights_apart_; }

  // Linear layers with weight [out, in] (this rank's sizes): y[T,out] = x[T,in] · Wᵀ. A column-parallel layer adds its
  // bias here; residual() adds the bias of a row-parallel layer once, after the sum. `gelu_of_y` is the output of the
  // GELU epilogue; absent: no epilogue. `x` has this rank's rows, which are gathered.
  void column_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                      std::optional<View> gelu_of_y = {});
  // Computes only `out` rows of the weight of `layer`, from `first` on.
  void column_part_forward(const std::string& name, const std::string& layer, std::int64_t first, std::int64_t in,
                           std::int64_t out, View x, View y);
  // With `residual`, y is residual + x · Wᵀ + bias in one operation, and residual() is not called. `kind` is added to
  // the operation's name.
  void row_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                   std::optional<View> residual = {}, const std::string& kind = "");
  // dx[T,in] = dy[T,out] · W;  dW[out,in] += dyᵀ · x;  db[out] += Σ dy over this rank's rows. Column: `x` has this
  // rank's rows, and `dx` is summed into `dx_part` (see summed); returns the view with the sum. Without `sums_bias`
  // another operation computes db.
  View column_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy, View x, View dx,
                       View dx_part, bool sums_bias = true);
  // `before_gelu` is the input of the GELU before this layer; with it dx is the gradient of that input. With
  // `bias_before_gelu`, unless "", Σ dx is added to the gradient of this bias.
  void row_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy_part, View x, View dx,
                    std::optional<View> before_gelu = {}, const std::string& bias_before_gelu = "");

  // A linear layer that tp does not cut, on this rank's rows, without a bias. `dx` is written or added to.
  void whole_forward(const std::string& name, const View& x, const View& y);
  void whole_backward(const std::string& name, const View& dy, const View& x, const Access& dx);

  // c[R,H] = a + dropout(b + bias), where the bias is that of the preceding row-parallel layer.
  void residual(const std::string& name, const std::string& layer, View a, View b, View c, DropoutSite site);
  // Computes the gradient of dropout's input in `db` from the gradient `dc` of dropout's output, and returns it.
  // Without hidden_dropout it returns `dc`.
  View dropped(const std::string& name, View dc, View db, DropoutSite site);
  bool drops() const { return shape_.model.hidden_dropout > 0; }
  View dropout_key() const;  // where any dropout is on
  // First positions of the documents of the micro-batch's sequences; where attention or positions are by document.
  View documents() const { return whole(schedule_, documents_, 0, Coord::micro_batch); }
  // Attention on whole sequences, forward or dgrad. The dropout key and documents are appended to `accesses`.
  void attention(const std::string& name, Pass pass, std::vector<Access> accesses);
  // Norms over the columns of x; with `heads` above 1 over the columns of each head.
  void norm_forward(const std::string& name, View x, View y, View stats, const Expr& layer, std::int64_t heads = 1);
  // Gradients of a norm. `dx` is an accumulate access when it already holds the residual branch's gradient.
  void norm_backward(const std::string& name, View dy, View x, View stats, Access dx, const Expr& layer,
                     std::int64_t heads = 1);
  // Rotates q and k in place; does nothing with learned positions.
  void rope(const std::string& name, Phase phase, Pass pass, View qkv);

 private:
  // dW += dyᵀ · x and db += Σ dy_bias: one operation when `dy_bias` is `dy` and bias_gradient_fusion is on.
  struct WeightGradient {
    std::string name;
    std::int64_t in = 0, out = 0;
    View dy, x;
    bool has_bias = false;
    View dy_bias;
    // for a deferred gradient: this rank has only its rows of dy; otherwise only its rows of x
    bool gathers_dy = false;
    std::string label = {};  // of the layer in names of operations
  };
  void write_or_put_off(WeightGradient gradient);
  void write_weight_gradient(const WeightGradient& gradient);
  void add(Operation operation);  // as one of the current module
  void append(Block& block, Operation operation);
  // Writes later, in the block of end_weights(), operations of the current module.
  void put_off(std::function<void()> write) {
    put_off_.emplace_back([this, module = module_, write = std::move(write)] {
      module_ = module;
      write();
    });
  }
  // Storages of a family, by home (LayerSlots) and slot.
  using HomeStorages = std::map<std::int64_t, std::map<std::int64_t, StorageId>>;
  // Appends a place for each slot of a layer to `places`. `storages` has the storages of earlier layers.
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
  Module module_ = Module::none;
  Recomputed recomputed_ = Recomputed::none;
  Factor codes_of_ = Factor::none;
  std::map<std::string, OpId> written_;  // name → operation
  std::vector<bool> is_beside_;          // [operation of the block] is concurrent with the previous one
  bool weights_apart_ = false;
  bool is_backward_ = false;
  std::map<TensorId, TensorId> of_backward_;  // activation → where a concurrent backward pass computes it again
  QuantisedLinears* codes_ = nullptr;
  bool in_codes_ = false;
  std::vector<std::function<void()>> put_off_;
  // [T,H] or wider, with sequence parallelism, for the forward pass and for the backward pass
  TensorId gathered_ = 0, d_gathered_ = 0;
  TensorId dropout_key_ = 0;  // [layer][micro-batch], where any dropout is on
  TensorId documents_ = 0;    // [micro-batch], where attention or positions are by document
};

}  // namespace stretto
