#pragma once
#include <cstdint>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/lower/parameters.hpp"

namespace stretto {

// The optimizer part of every program is written with these.
struct Optimizer {
  std::vector<BucketTensors> tensors;  // [bucket]
  View norm_squared, hyper;
  LaneId compute = 0, dp = 0, tp = 0;
  std::uint32_t dp_communicator = 0, tp_communicator = 0;
  Expr shard = 0;             // of each bucket: the one that the rank updates
  bool sums_metrics = false;  // with more than one rank:
  BlockId sum_metrics = 0;    // loss and norm, over all ranks
  bool is_tied = false;       // over pipeline stages:
  BlockId sum_tied = 0;  // the embedding's gradient, of the shard that this rank updates, over first and last stage
};

// Appends what follows backward to the program of a role, everything one after the other: gradient reduce-scatter,
// global norm, AdamW on the shard, parameter all-gather; without an optimizer that is sharded all-reduce, norm, AdamW.
// Fills the operations of the role's `lowered.bucket_ops`. With a frozen base only the sum of the metrics is left.
//
// Megatron-LM sums the whole gradient of a tied embedding over stages; here it is the shard that is left after the
// reduction over dp, which is what the optimizer reads.
void append_optimizer(Lowered& lowered, const Optimizer& optimizer, const ModelParameters& parameters,
                      const Scenario& scenario, std::size_t role);

}  // namespace stretto
