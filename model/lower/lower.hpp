#pragma once
#include <vector>

#include "model/lower/buckets.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// What data-parallel rewrites need to find their operations: one entry per gradient bucket, in bucket order (the order
// in which gradients become ready). Absent operations are kNone (dp 1 has no communication; fp32 reduction has no
// casts).
constexpr OpId kNone = ~OpId{0};
struct BucketOps {
  StorageId parameter = 0, gradient = 0;
  OpId cast_down = kNone, reduce_scatter = kNone, cast_up = kNone, sum_squares = kNone, adamw = kNone,
       all_gather = kNone;
};

struct Lowered {
  Schedule schedule;
  std::vector<Bucket> buckets;
  std::vector<BucketOps> bucket_ops;
};

// The plain schedule of one training step: gradient accumulation over micro-batches, then gradient reduce-scatter,
// global norm, AdamW on the shard, parameter all-gather, everything one after the other (ZeRO-1: Rajbhandari et al.,
// arXiv 1910.02054; Megatron's distributed optimizer). Buckets are cut as the overlap settings say: without
// overlap_grad_reduce there is one, as in Megatron.
Lowered lower_plain(const Scenario& scenario);

}  // namespace stretto
