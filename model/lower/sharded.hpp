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
// embedding, the final norm, or the head. What all tensor-parallel ranks hold alike is a unit of its own beside it, and
// so are both copies of an embedding that the first and the last pipeline stage have.

// True when the scenario asks for it and there are replicas to cut over.
bool shards_units(const Scenario& scenario);

// True with pipeline stages and reshard_after_forward off: a stage gathers its units before their first use in a step
// and keeps them, and sums whole gradients over micro-batches. A model chunk's are reduced behind its last backward
// pass, as torch.distributed.pipelining does it (REDUCE_GRAD).
bool keeps_whole(const Parallel& parallel);

// The parameters of a unit, for all layers of one LayerSpec. `layer` of a view names the layer; 0 outside the layers.
struct ShardedUnit {
  std::string name;                  // "layer", "embedding", …, and the suffix of its class
  std::int64_t instances = 1;        // places of its families: the layers of the model, or 1
  std::vector<std::int64_t> layers;  // that have it, in ascending order; {0} outside the layers
  std::vector<std::size_t> roles;    // [instance] program whose ranks have it
  std::size_t first_state = 0;       // bucket of the state map, of the first of `layers`; the others follow
  Bucket bucket;                     // of one layer
  std::size_t parameter_class() const { return bucket.parameter_class; }
  std::int64_t shard = 0;
  // Families over the layers. Whole ones are in buffers that layers of a stage share in turn, unless they are kept.
  TensorId parameter = 0, parameter_shard = 0;  // of ZeRO-2 there is no shard: it is a slice of the whole
  TensorId gradient = 0, gradient_shard = 0;
  TensorId low = 0;  // the gradient in bf16, with casts
  TensorId m = 0, v = 0;
  std::optional<TensorId> master;
};

// Gradients of units of one class and one role: their shards lie in a row, so that one operation zeroes them and one
// sums their squares.
struct GradientShards {
  std::size_t role = 0, parameter_class = 0;
  TensorId all = 0;
};

struct ShardedParameters {
  ModelParameters model;  // as the blocks of the layers know them
  std::vector<ShardedUnit> units;
  std::vector<GradientShards> gradients;  // none with a frozen base
};

// Instead of add_parameters() and add_bucket_tensors(): storages, tensors and the whole state map.
ShardedParameters add_sharded_parameters(Schedule& schedule, const Scenario& scenario,
                                         const std::vector<ParameterClass>& classes);

// Instead of append_optimizer(), when all programs have forward and backward passes: puts the gather of a unit before
// the calls that use it, and the reduce-scatter behind those that add to its gradient; then norm, AdamW and, with
// ZeRO-2, gathers. Everything is in the program's sequence, one after the other. Fills `lowered.sharded`.
//
// A gradient is reduced behind the last call of each micro-batch that adds to it, and added to the shard of the sum
// over micro-batches. With reshard_after_forward every use of a unit is preceded by a gather, otherwise the first use
// in a micro-batch. With stages, whose micro-batches overlap, that is so of a step (keeps_whole()).
void append_sharded(Lowered& lowered, const ShardedParameters& parameters, const Optimizer& optimizer,
                    const ModelBlocks& blocks, const Scenario& scenario);

// The tensor of a tied embedding's gradient shards, of the first and the last stage.
TensorId tied_gradient_shards(Schedule& schedule, const ShardedParameters& parameters);

}  // namespace stretto
