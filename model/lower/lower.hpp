#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/acting_overlap.hpp"
#include "model/lower/buckets.hpp"
#include "model/lower/parameter_class.hpp"
#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The operations of one gradient bucket, for the data-parallel rewrites. Entries are in bucket order, the order in
// which gradients become ready. Absent operations are kNone (dp 1 has no communication; fp32 reduction has no casts).
constexpr OpId kNone = ~OpId{0};
struct BucketOps {
  std::size_t role = 0;                   // index into Schedule::programs
  StorageId parameter = 0, gradient = 0;  // no gradient with a frozen base
  bool first_chunk = false;               // first of the model's chunks on its stage
  OpId tp_all_reduce = kNone, cast_down = kNone, reduction = kNone, cast_up = kNone, sum_squares = kNone, adamw = kNone,
       all_gather = kNone, tied_all_reduce = kNone;
  OpId instances_all_reduce = kNone;      // all-reduce of the shard, across instances of the optimizer
  OpId local_sum = kNone;                 // sums the parts that an all-to-all has brought; replaces the cast up
  OpId to_fp8 = kNone, from_fp8 = kNone;  // casts before and after the all-gather
  // Returns the communication after which the shard has its sum.
  OpId last_reduction() const { return instances_all_reduce != kNone ? instances_all_reduce : reduction; }
};

// Operations of ZeRO-2 and ZeRO-3 (model/lower/sharded) that their rewrite moves.
struct ShardedOps {
  std::set<OpId> gathers;  // gathers of parameters
  std::set<OpId> reductions;
  std::set<OpId> zeros;  // zero a whole gradient before it is accumulated
  // Operations that follow a reduction (casts, and the sum over micro-batches) → the gradient.
  std::map<OpId, TensorId> additions;
};

// Attention of layers with cp_comm_type a2a: between two exchanges a rank has all keys for its share of the heads.
struct ExchangedAttention {
  std::string name;  // prefix of the names of its operations
  Group exchange;
};

// The plain schedule, with the data by which rewrites find their way in it.
struct Lowered {
  Schedule schedule;
  std::vector<ParameterClass> classes;
  std::vector<Bucket> buckets;
  std::vector<BucketOps> bucket_ops;
  ShardedOps sharded;
  // Blocks for the rewrites of tensor-parallel communication, which find operations by their names.
  std::vector<BlockId> layer_blocks;     // for each kind: forward, (recompute,) (weight gradients,) backward
  std::vector<BlockId> forward_blocks;   // embedding, head, layers
  std::vector<BlockId> backward_blocks;  // backward of layers
  std::vector<BlockId> end_blocks;       // embedding forward, head forward, head backward, embedding backward
  std::vector<OpId> free;                // operations that wait only for their data (derive_waits)
  std::set<OpId> free_in_block;          // operations that BlockEditor has set free within their block
  std::map<OpId, OpId> starts_after;     // operation → operation of its block that has started before
  std::set<OpId> waits_for_all;          // operations that wait for every earlier one of their block
  // Operation → the operations with which BlockEditor has replaced it; none where it is removed.
  std::map<OpId, std::vector<OpId>> replaced;
  LaneId compute = 0;
  Group tp;
  Group ep;                         // the ranks that exchange rows of experts
  LaneId cp_send = 0, cp_recv = 0;  // lanes round the ring of context parallelism, where there is one
  ExchangedAttention cp_exchanged;  // where the model has such layers
};

// Returns the plain schedule of one training step: gradient accumulation over micro-batches, then gradient
// reduce-scatter, global norm, AdamW on the shard, parameter all-gather. Nothing overlaps (ZeRO-1: Rajbhandari et al.,
// arXiv 1910.02054; Megatron's distributed optimizer). The overlap settings decide the buckets: without
// overlap_grad_reduce there is one, as in Megatron. `classes_of` says which groups have which parameters.
using ClassesOf = std::vector<ParameterClass> (*)(Schedule& schedule, const Scenario& scenario, const Groups& groups);
Lowered lower_plain(const Scenario& scenario, ClassesOf classes_of = parameter_classes);

}  // namespace stretto
