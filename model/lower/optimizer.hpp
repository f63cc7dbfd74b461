#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/lower/parameters.hpp"

namespace stretto {

// The optimizer part of every program is written with these.
struct Optimizer {
  std::vector<BucketTensors> tensors;  // [bucket]
  View norm_squared, hyper;
  LaneId compute = 0, dp = 0, instances = 0, tp = 0;
  std::uint32_t dp_communicator = 0, instances_communicator = 0, tp_communicator = 0;
  Expr shard = 0;             // of each bucket: the one that the rank updates
  bool sums_metrics = false;  // with more than one rank:
  BlockId sum_metrics = 0;    // loss and norm, over all ranks
  bool is_tied = false;       // over pipeline stages:
  BlockId sum_tied = 0;  // the embedding's gradient, of the shard that this rank updates, over first and last stage
};

// Whether gradients in bf16 go round by an all-to-all and are summed in f32 (reduce_scatter_with_fp32_accumulation).
bool sums_in_fp32(const Scenario& scenario);
// Whether the weights of linear layers are gathered in fp8 (fp8_param_gather): ModelParameters::in_fp8.
bool gathers_fp8(const Scenario& scenario);
// Whether the update begins with the first model chunk, which is gathered beside the rest of it
// (overlap_param_gather_with_optimizer_step).
bool updates_first_chunk_first(const Scenario& scenario);

// Operands of AdamW on a shard, as model/schedule/work.hpp has them: gradient R, norm R, hyper R, parameter RW (only
// written with `master`, which it is then rounded from), m RW, v RW, master RW.
std::vector<Access> adamw_accesses(const Optimizer& optimizer, View gradient, View parameter, View m, View v,
                                   std::optional<View> master);

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
