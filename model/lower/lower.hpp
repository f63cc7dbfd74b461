#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

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
  bool first_chunk = false;               // of the model's chunks on its stage
  OpId tp_all_reduce = kNone, cast_down = kNone, reduction = kNone, cast_up = kNone, sum_squares = kNone, adamw = kNone,
       all_gather = kNone, tied_all_reduce = kNone;
  OpId instances_all_reduce = kNone;      // of the shard, across instances of the optimizer
  OpId local_sum = kNone;                 // instead of a cast up: of parts that an all-to-all has brought
  OpId to_fp8 = kNone, from_fp8 = kNone;  // before and behind the all-gather
  // The communication after which the shard has its sum.
  OpId last_reduction() const { return instances_all_reduce != kNone ? instances_all_reduce : reduction; }
};

// ZeRO-2 and ZeRO-3 (model/lower/sharded): what their rewrite moves.
struct ShardedOps {
  std::set<OpId> gathers;  // of parameters
  std::set<OpId> reductions;
  std::set<OpId> zeros;  // of a whole gradient, before it is accumulated
  // What comes behind a reduction: casts, and the sum over micro-batches. Of which gradient.
  std::map<OpId, TensorId> additions;
};

// Attention of layers with cp_comm_type a2a: between two exchanges a rank has all keys, of its share of the heads.
struct ExchangedAttention {
  std::string name;  // with which the names of its operations begin
  Group exchange;
};

// The plain schedule, with what rewrites need to find their way in it.
struct Lowered {
  Schedule schedule;
  std::vector<ParameterClass> classes;
  std::vector<Bucket> buckets;
  std::vector<BucketOps> bucket_ops;
  ShardedOps sharded;
  // For the rewrites of tensor-parallel communication, which find operations by their names.
  std::vector<BlockId> layer_blocks;     // of each kind: forward, (recompute,) (weight gradients,) backward
  std::vector<BlockId> forward_blocks;   // embedding, head, layers
  std::vector<BlockId> backward_blocks;  // of layers
  std::vector<BlockId> end_blocks;       // embedding forward, head forward, head backward, embedding backward
  std::vector<OpId> free;        // operations that wait for what their data needs and for nothing else (derive_waits)
  std::set<OpId> free_in_block;  // the same within their block: what BlockEditor has set free
  // What BlockEditor has put in place of an operation; nothing where it is gone.
  std::map<OpId, std::vector<OpId>> replaced;
  LaneId compute = 0;
  Group tp;
  LaneId cp_send = 0, cp_recv = 0;  // round the ring of context parallelism, where there is one
  ExchangedAttention cp_exchanged;  // where there is such
};

// The plain schedule of one training step: gradient accumulation over micro-batches, then gradient reduce-scatter,
// global norm, AdamW on the shard, parameter all-gather. Nothing overlaps (ZeRO-1: Rajbhandari et al., arXiv
// 1910.02054; Megatron's distributed optimizer). Buckets are cut as the overlap settings say: without
// overlap_grad_reduce there is one, as in Megatron. `classes_of` says which groups have which parameters.
using ClassesOf = std::vector<ParameterClass> (*)(Schedule& schedule, const Scenario& scenario, const Groups& groups);
Lowered lower_plain(const Scenario& scenario, ClassesOf classes_of = parameter_classes);

}  // namespace stretto
