#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/lower/parameters.hpp"
#include "model/lower/update.hpp"

namespace stretto {

// The optimizer part of every program is written with these.
struct Optimizer : UpdateContext {
  std::vector<BucketTensors> tensors;  // [bucket]
  std::optional<BlockId> sum_metrics;  // loss and norm, over all ranks, where there are several
  BlockId sum_tied = 0;                // the shard of a tied embedding's gradient that this rank updates
};

// Whether gradients in bf16 go round by an all-to-all and are summed in f32 (reduce_scatter_with_fp32_accumulation).
bool sums_in_fp32(const Scenario& scenario, const ParameterClass& of);
// Whether the weights of linear layers are gathered in fp8 (fp8_param_gather): ModelParameters::in_fp8.
bool gathers_fp8(const Scenario& scenario);
// Whether the update begins with the first model chunk, which is gathered beside the rest of it
// (overlap_param_gather_with_optimizer_step).
bool updates_first_chunk_first(const Scenario& scenario);

// Appends what follows backward to the program of a role, everything one after the other: gradient reduce-scatter,
// global norm, AdamW on the shard, parameter all-gather; without an optimizer that is sharded all-reduce, norm, AdamW.
// Fills the operations of the role's `lowered.bucket_ops`. With a frozen base only the sum of the metrics is left.
//
// With several instances of the optimizer a reduce-scatter is inside one, and an all-reduce of the shard across them
// follows it. With fp8_param_gather the weights of linear layers are cast and gathered at the
// beginning of the step instead of at its end, so that they are the same in the first step as in later ones.
//
// Megatron-LM sums the whole gradient of a tied embedding over stages; here it is the shard that is left after the
// reduction over dp, which is what the optimizer reads.
void append_optimizer(Lowered& lowered, const Optimizer& optimizer, const ModelParameters& parameters,
                      const Scenario& scenario, std::size_t role);

}  // namespace stretto
