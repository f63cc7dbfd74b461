#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/lower/blocks.hpp"

namespace stretto {

// Writes operations into one rank's blocks, and adds the tensors of layers. T = tokens of a micro-batch; R = this
// rank's tokens of the residual stream: T/tp with sequence parallelism, else T. Layers are cut over tp as in
// Megatron-LM (Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198).
//
// It writes the plain schedule: the operations of a block run one after the other, whatever their lanes. A name stands
// for one operation: a block that writes an operation with a known name reuses the operation of an earlier block.
// References are borrowed and must outlive this object.
class BlockWriter {
 public:
  BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters);

  void begin(const std::string& name);
  // Begins a block of a backward pass of layers, which reads what it computes again in places of its own where a
  // forward pass may be concurrent.
  void begin_backward(const std::string& name);
  BlockId end();
  // Appends the operation to the block. `is_concurrent`: with the one before.
  void emit(Operation operation, bool is_concurrent = false);
  // Returns the workspace [T,cols] in which all rows are gathered in this block.
  View gathering_place(Phase phase, std::int64_t cols) const;
  // Adds an activation. With `layers` > 1 there is one instance for each layer, saved until that layer's backward pass.
  TensorId activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers);
  // How an activation may be recomputed: layers that recompute it before their backward pass share instances.
  struct Role {
    bool is_input = false;            // the layer's input, saved where a group of recomputed layers begins
    bool is_again = false;            // a backward pass computes it again for its own layer
    bool is_statistics = false;       // row statistics, kept in the accumulation type
    bool is_mask = false;             // mask of dropout, i32
    std::optional<Dtype> dtype = {};  // another type than the step's
    std::vector<bool> layers = {};    // [layer] that have the activation; empty: all
    std::vector<bool> again = {};     // [layer] whose backward pass recomputes it; empty: as is_again says
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
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots = 1);
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
  View dropout_key() const;  // where any dropout is on
  // First positions of the documents of the micro-batch's sequences; where attention or positions are by document.
  View documents() const { return whole(schedule_, documents_, 0, Coord::micro_batch); }

 private:
  void append(Block& block, Operation operation);
  // Storages of a family, by home (LayerSlots) and slot.
  using HomeStorages = std::map<std::int64_t, std::map<std::int64_t, StorageId>>;
  // Appends a place for each slot of a layer to `places`. `storages` has the storages of earlier layers.
  void add_places(std::vector<TensorPlace>& places, const std::string& name, Dtype dtype, std::int64_t elements,
                  std::int64_t layer, HomeStorages& storages);
  void add_dropout_keys();

  Schedule& schedule_;
  const ParameterTensors& parameters_;
  const BlockShape& shape_;
  Dtype dtype_;
  Expr slot_;
  Block block_;
  std::map<std::string, OpId> written_;  // name → operation
  std::vector<bool> is_concurrent_;      // [operation of the block] is concurrent with the previous one
  bool is_backward_ = false;
  std::map<TensorId, TensorId> of_backward_;  // activation → where a concurrent backward pass computes it again
  // [T,H] or wider, with sequence parallelism, for the forward pass and for the backward pass
  TensorId gathered_ = 0, d_gathered_ = 0;
  TensorId dropout_key_ = 0;  // [layer][micro-batch], where any dropout is on
  TensorId documents_ = 0;    // [micro-batch], where attention or positions are by document
};

}  // namespace stretto
