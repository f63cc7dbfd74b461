#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/graph/layout.hpp"
#include "model/layout.hpp"
#include "model/linear_layers.hpp"
#include "model/lower/builder.hpp"
#include "model/lower/groups.hpp"
#include "model/lower/lower.hpp"
#include "model/ops/sequence_parts.hpp"
#include "model/recompute.hpp"
#include "model/transformer.hpp"

namespace stretto {

// The properties that decide the blocks of a layer: layers of equal kind share blocks.
struct LayerKind {
  LayerSpec spec;
  std::size_t context = 0;  // index into ContextShape::kinds
  bool in_codes = false;    // products of linear layers are of codes
  auto operator<=>(const LayerKind&) const = default;
};

// The storages of a layer's activations: one for each slot that the layer's micro-batches take. Layers of a stage whose
// chunks share slots have the storages of one of these layers, `home`: the layer at the same place of the first such
// chunk.
struct LayerSlots {
  std::int64_t home = 0;
  std::vector<std::int64_t> used;  // slots, in ascending order; at least one
};

// Sizes that the blocks of one rank are built for.
struct BlockShape {
  Transformer model;
  std::vector<LayerKind> kinds;            // each kind once
  std::vector<std::size_t> kind_of_layer;  // [layer] into `kinds`
  TokenData data;
  double loss_scale = 1;  // 1 / tokens of the global batch
  // [layer], with one more for the head's input
  std::vector<LayerSlots> slots;
  std::vector<std::int64_t> layer_in_chunk;  // [layer] place in its model chunk; layers are recomputed chunk by chunk
  std::int64_t output_buffers = 1;           // buffers of a chunk's output to the next chunk
  std::int64_t gradient_buffers = 1;         // buffers of the gradient at a boundary of chunks
  std::vector<ModelChunk> chunks;            // of the model, from input to head
  StageMap map;                              // the stages of these chunks
  // micro-batches whose head.wgrad waits for the flush; 0: head.wgrad is part of backward
  std::int64_t deferred = 0;
  bool pairs_passes = false;  // passes of different micro-batches run concurrently, and share no workspace
  // Weight gradients of layers' linear layers are blocks of their own, called by W units, which have the head's too, or
  // within the backward pass, after what other layers wait for.
  bool weights_apart = false, weights_in_units = false;
  bool attention_early = false;    // of pairs: the backward pass's attention precedes the forward pass's experts
  std::string head_weight;         // parameter of the head's GEMM
  std::int64_t micro_batches = 1;  // per step and rank; the inputs of all of them exist when the step starts
  Recompute recompute;
  AttentionBackend attention_backend = AttentionBackend::fused;
  bool frozen_base = false;  // no gradients of parameters: backward computes only data gradients
  Fusions fusions;
  Group tp;                        // the ranks that cut the layers
  bool sequence_parallel = false;  // these ranks also cut the tokens between layers
  bool scatters_messages = false;  // these ranks also cut the tokens of messages between stages
  ContextShape cp;
  LowPrecision precision;
  LowPrecisionRules low;       // of `precision`
  Group amax;                  // ranks that share amaxes of delayed scaling
  std::vector<bool> in_codes;  // [layer]
  // Codes of weights are made in each pass of a layer, because its parameters are whole only then (FSDP).
  bool codes_in_passes = false;
  bool has_numbers() const {  // some layer's products are not of codes
    return std::count(in_codes.begin(), in_codes.end(), false) > 0;
  }
  LaneId shared_expert = 0;  // the lane of its computation; other than the common one: it is concurrent with exchanges
  // The ranks that share the experts of a layer: they exchange rows and their counts. Ranks that gather tokens because
  // they cut each expert, or share experts: these, or where there is no such group those of tp.
  Group ep, ep_counts, expert_tokens;
  ExpertCut experts;     // but for how its rows travel, which is the communicator's
  Group sharing_tokens;  // ranks that share the tokens of a micro-batch, where a loss of the router sums over them
  LinearCuts linear_cuts() const { return {tp.size, experts.width_ranks, experts.local}; }
  const LayerKind& kind(std::int64_t layer) const { return kinds[kind_of_layer[static_cast<std::size_t>(layer)]]; }
  // The tokens of every sequence that this rank has.
  SequenceParts parts() const { return {cp.size, cp.place, 1}; }
  bool puts_off_head() const { return deferred > 0 || weights_in_units; }  // its weight gradient is deferred
  // Returns one more than the largest slot.
  std::int64_t most_slots() const {
    std::int64_t most = 0;
    for (const LayerSlots& of_layer : slots) most = std::max(most, of_layer.used.back() + 1);
    return most;
  }
  // Returns the number of slots of the head's activations, which are slots of their own, from 0 on.
  std::int64_t head_slots() const { return slots.back().used.back() + 1; }
  std::int64_t tokens() const { return data.micro_batch_size * model.seq_length / cp.size; }
};

// Returns the shape but for its chunks, slots and buffers, which follow from the orders of the stages.
BlockShape shape_of(const Scenario& scenario, const Groups& groups);

// Parameters and their gradients by name ("qkv.weight"); layered ones are families over the layers.
struct ParameterTensors {
  std::map<std::string, TensorId> parameter, gradient;
};

// The blocks of one kind of layer.
struct LayerBlocks {
  BlockId forward = 0, backward = 0;
  BlockId wgrad = 0;  // with `weights_apart`: weight gradients, which are not part of backward
  // The forward pass of a layer, computed again. Its first `recompute_inner` operations are all that the layer's own
  // backward pass needs (with Recompute::whole_layers, all that do not write the layer's output); the other operations
  // make the input of the next layer. With selective_op the block has all recomputed operations, which do not depend on
  // LayerKind::context.
  BlockId recompute = 0;
  std::uint32_t recompute_inner = 0;
  // with products of codes, but for `codes_in_passes`: before the first forward pass of a step
  std::optional<BlockId> quantise_weights;
};

// Straight-line parts of forward and backward, each called per micro-batch and, for layers, per layer. Backward holds
// data-gradient and weight-gradient operations as separate operations (phases dgrad and wgrad). An order calls for each
// layer the blocks of its kind. An operation that kinds have in common is one operation in the blocks of all of them.
struct ModelBlocks {
  // Tensors between chunks. chunk_input and chunk_output are families over all chunks of the model; a chunk's input is
  // the input of its first layer.
  TensorId chunk_input = 0, chunk_output = 0, gradient = 0;
  BlockId embedding_forward = 0, head_forward = 0, head_backward = 0, embedding_backward = 0;
  // with `weights_apart` or `deferred`: the head's weight gradient, which is not part of head_backward
  BlockId head_wgrad = 0;
  std::vector<LayerBlocks> layers;  // [BlockShape::kinds]
  // with delayed scaling: after the layers of a chunk, in both passes
  std::optional<BlockId> update_forward, update_backward;
};

struct DelayedScaling;
// Adds activations, inputs ("tokens", "targets") and the blocks, from the forward graphs of layers (model/layers) by
// passes (model/passes). `loss` is the f64 scalar view in which losses add up;
// `delayed` are the scales of delayed scaling, or null.
ModelBlocks add_model_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                             const View& loss, LaneId compute, DelayedScaling* delayed);

}  // namespace stretto
