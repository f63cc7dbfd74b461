#pragma once
#include <string>
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
  std::size_t role = 0;  // program that it is of
  StorageId parameter = 0, gradient = 0;
  OpId tp_all_reduce = kNone, cast_down = kNone, reduce_scatter = kNone, cast_up = kNone, sum_squares = kNone,
       adamw = kNone, all_gather = kNone, tied_all_reduce = kNone;
};

// A column-parallel layer under tensor parallelism, for the rewrites of its backward pass.
struct ColumnParallel {
  std::string name;       // "fc1"; with sequence parallelism "fc1.all_gather_wgrad" stands before "fc1.dgrad"
  BlockId backward = 0;   // the block that holds it
  std::string reduction;  // the operation that sums the dgrad over ranks
  std::string reader;     // the first that reads the sum
};

struct Lowered {
  Schedule schedule;
  std::vector<Bucket> buckets;
  std::vector<BucketOps> bucket_ops;
  std::vector<ColumnParallel> column_parallel;  // empty without tensor parallelism
};

// The plain schedule of one training step: gradient accumulation over micro-batches, then gradient reduce-scatter,
// global norm, AdamW on the shard, parameter all-gather, everything one after the other (ZeRO-1: Rajbhandari et al.,
// arXiv 1910.02054; Megatron's distributed optimizer). Buckets are cut as the overlap settings say: without
// overlap_grad_reduce there is one, as in Megatron.
Lowered lower_plain(const Scenario& scenario);

}  // namespace stretto
