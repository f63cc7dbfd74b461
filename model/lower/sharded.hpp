#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/lower/optimizer.hpp"
#include "model/lower/parameters.hpp"

namespace stretto {

// ZeRO-2 and ZeRO-3 (Rajbhandari et al., arXiv 1910.02054; PyTorch's FSDP2, Megatron-FSDP): replicas keep shards of
// gradients, and of parameters, and gather and reduce whole ones unit by unit. A unit is a transformer layer, the
// embedding, the final norm, or the head. Parameters of a unit that all tensor-parallel ranks hold form a separate
// unit, and so do both copies of an embedding that the first and the last pipeline stage have.

// Returns whether the scenario asks for units and there are several replicas.
bool shards_units(const Scenario& scenario);

// Returns true with pipeline stages and reshard_after_forward off. A stage then gathers its units before their first
// use in a step and keeps them, and sums whole gradients over micro-batches. The gradients of a model chunk are reduced
// after its last backward pass, as in torch.distributed.pipelining (REDUCE_GRAD).
bool keeps_whole(const Parallel& parallel);

// The parameters of a unit, for all layers of one LayerSpec::suffix_of_parameters(). `layer` of a view names the layer;
// 0 outside the layers.
struct ShardedUnit {
  std::string name;                  // "layer", "embedding", …, and the suffix of its class
  std::int64_t instances = 1;        // number of places of its families: the layers of the model, or 1
  std::vector<std::int64_t> layers;  // layers that have it, in ascending order; {0} outside the layers
  std::vector<std::size_t> roles;    // [instance] program whose ranks have it
  std::size_t first_state = 0;       // bucket of the state map for the first of `layers`; the others follow
  Bucket bucket;                     // bucket of one layer
  std::size_t parameter_class() const { return bucket.parameter_class; }
  std::int64_t shard = 0;
  // Families over the layers. Whole tensors are in buffers that layers of a stage use in turn, unless they are kept.
  TensorId parameter = 0, parameter_shard = 0;  // ZeRO-2 has no separate shard: it is a slice of the whole
  TensorId gradient = 0, gradient_shard = 0;
  TensorId low = 0;  // the gradient in bf16, with casts
  TensorId m = 0, v = 0;
  std::optional<TensorId> master;
};

// Gradients of all units of one class and one role: their shards are contiguous, so that one operation zeroes them and
// one sums their squares.
struct GradientShards {
  std::size_t role = 0, parameter_class = 0;
  TensorId all = 0;
};

struct ShardedParameters {
  ModelParameters model;  // the names that the blocks of the layers use
  std::vector<ShardedUnit> units;
  std::vector<GradientShards> gradients;  // empty with a frozen base
};

// Adds storages, tensors and the whole state map. Replaces add_parameters() and add_bucket_tensors().
ShardedParameters add_sharded_parameters(Schedule& schedule, const Scenario& scenario,
                                         const std::vector<ParameterClass>& classes);

// Adds gathers, reductions and the optimizer when all programs have forward and backward passes. Replaces
// append_optimizer(). The gather of a unit comes before the calls that use the unit, and the reduce-scatter after the
// calls that add to its gradient; then norm, AdamW and, with ZeRO-2, gathers. Everything is in the program's sequence,
// one after the other. Fills `lowered.sharded`.
//
// A gradient is reduced after the last call of each micro-batch that adds to it, and added to the shard of the sum over
// micro-batches. With reshard_after_forward a gather precedes every use of a unit, otherwise only the first use in a
// micro-batch. With stages, whose micro-batches overlap, it precedes the first use in a step (keeps_whole()).
void append_sharded(Lowered& lowered, const ShardedParameters& parameters, const Optimizer& optimizer,
                    const ModelBlocks& blocks, const Scenario& scenario);

// Returns the tensor of a tied embedding's gradient shards, of the first and the last stage.
TensorId tied_gradient_shards(Schedule& schedule, const ShardedParameters& parameters);

}  // namespace stretto
