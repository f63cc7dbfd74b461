// overlap_grad_reduce (Megatron-LM DistributedDataParallelConfig): the reduce-scatter of a bucket starts as soon as the
// last weight gradient in it is complete, while backward goes on with earlier layers.
//
// Edges:   last accumulate into bucket b, last micro-batch  →  RS_b  →  norm (all buckets, after backward)
// Order:   buckets are serialised among themselves on the dp lane, in the order in which they become ready.
// Exposed: f_b = max(r_b, f_{b−1}) + c_b;  exposed = max(0, f_B − t_bwd_end): the last bucket and the backlog.
#include <algorithm>
#include <utility>

#include "model/overlap/overlap.hpp"
#include "model/schedule/order.hpp"

namespace stretto {

void rewrite_overlap_grad_reduce(Lowered& lowered) {
  Schedule& schedule = lowered.schedule;
  for (const BucketOps& ops : lowered.bucket_ops) {
    Program& program = schedule.programs[ops.role];
    // What the plain schedule has between backward and the norm: sums over tensor-parallel ranks, the cast on the
    // compute lane, then the reduce-scatter.
    std::vector<Call> moved;
    for (const OpId op : {ops.tp_all_reduce, ops.cast_down, ops.reduce_scatter}) {
      if (op == kNone) continue;
      const std::size_t call = call_of(schedule, program, op);
      moved.push_back(std::move(program.order[call]));
      program.order.erase(program.order.begin() + static_cast<std::ptrdiff_t>(call));
    }
    const LaneId compute = schedule.operations[ops.adamw].lane;
    // The last accumulate of backward: what follows on the compute lane (casts of the shard) writes gradients too, so
    // look at weight-gradient operations only, by leaving the optimizer part of the order out.
    const BucketOps& first = *std::find_if(lowered.bucket_ops.begin(), lowered.bucket_ops.end(),
                                           [&](const BucketOps& other) { return other.role == ops.role; });
    Program backward = program;
    backward.order.resize(call_of(schedule, program, ops.cast_up != kNone ? first.cast_up : first.sum_squares));
    const OrderPosition last = last_writer(schedule, backward, ops.gradient, compute);
    const Edge complete{EdgeKind::finish_start, address_of(schedule, program, last)};
    if (ops.tp_all_reduce != kNone) {
      moved.front().waits = {complete};
      moved[1].waits = {{EdgeKind::finish_start, {ops.tp_all_reduce, 0, 0, 0, 0}}};
    } else if (ops.cast_down == kNone) {
      moved.back().waits = {complete};
    }
    std::size_t at = last.call + 1;
    if (last.within + 1 < program.order[last.call].count) at = cut_before(program, {last.call, last.within + 1});
    program.order.insert(program.order.begin() + static_cast<std::ptrdiff_t>(at), moved.begin(), moved.end());
  }
}

}  // namespace stretto
