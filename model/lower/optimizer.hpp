#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/lower/parameters.hpp"
#include "model/lower/update.hpp"

namespace stretto {

// The data with which the optimizer part of every program is written.
struct Optimizer : UpdateContext {
  std::vector<BucketTensors> tensors;  // [bucket]
  std::optional<BlockId> sum_metrics;  // sums loss and norm over all ranks, where there are several
  BlockId sum_tied = 0;                // sums the shard of a tied embedding's gradient that this rank updates
};

// Returns whether gradients in bf16 are exchanged by an all-to-all and summed in f32
// (reduce_scatter_with_fp32_accumulation).
bool sums_in_fp32(const Scenario& scenario, const ParameterClass& of);
// Returns whether the weights of linear layers are gathered in fp8 (fp8_param_gather): ModelParameters::in_fp8.
// Products of codes with scales of blocks need them in bf16 (Megatron-LM's reuse_grad_buf_for_mxfp8_param_ag).
bool gathers_fp8(const Scenario& scenario);
// Returns the type of masters: i16 where the parameters are the upper halves (AdamW's remainders). Frameworks keep them
// so where TransformerEngine's FusedAdam has parameters in bf16 (core/optimizer/optimizer_config.py:407 and
// distrib_optimizer.py:423 of Megatron-LM d98e8a64), and Megatron-FSDP keeps its own masters whole.
Dtype master_type(const Scenario& scenario);
// Returns whether the update begins with the first model chunk, whose gather overlaps with the other updates
// (overlap_param_gather_with_optimizer_step).
bool updates_first_chunk_first(const Scenario& scenario);

// Appends the operations after backward to the program of a role, one after the other: gradient reduce-scatter, global
// norm, AdamW on the shard, parameter all-gather; with an unsharded optimizer all-reduce, norm, AdamW. Fills the
// operations of the role's `lowered.bucket_ops`. With a frozen base only the sum of the metrics remains.
//
// With several instances of the optimizer a reduce-scatter is inside one instance, and an all-reduce of the shard
// across instances follows it. With fp8_param_gather the weights of linear layers are cast and gathered at the
// beginning of the step and not at its end, so that the weights of the first step are rounded like those of later ones.
//
// Megatron-LM sums the whole gradient of a tied embedding over stages. Here only the shard that is left after the
// reduction over dp is summed, because only the shard is read by the optimizer.
void append_optimizer(Lowered& lowered, const Optimizer& optimizer, const ModelParameters& parameters,
                      const Scenario& scenario, std::size_t role);

}  // namespace stretto
