// overlap_grad_reduce (Megatron-LM DistributedDataParallelConfig): the reduce-scatter of a bucket starts as soon as the
// last weight gradient in it is complete, while backward goes on with earlier layers.
//
// Edges:   last accumulate into bucket b, last micro-batch  →  RS_b  →  norm (all buckets, after backward), derived
// Order:   buckets are serialised among themselves on the dp lane, in the order in which they become ready.
// Exposed: f_b = max(r_b, f_{b−1}) + c_b;  exposed = max(0, f_B − t_bwd_end): the last bucket and the backlog.
#include "model/overlap/grad_reduce.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

#include "model/overlap/mode.hpp"
#include "model/schedule/order.hpp"

namespace stretto {

namespace {

// The operations of the plain schedule between backward and the norm: sums over tensor-parallel ranks, the cast on the
// compute lane, then the reduce-scatter.
std::vector<OpId> moved_of(const BucketOps& ops) {
  std::vector<OpId> moved;
  for (const OpId op : {ops.tp_all_reduce, ops.cast_down, ops.reduction})
    if (op != kNone) moved.push_back(op);
  return moved;
}

void rewrite_role(Lowered& lowered, Program& program, const std::vector<BucketOps>& buckets) {
  const Schedule& schedule = lowered.schedule;
  const LaneId compute = schedule.operations[buckets.front().adamw].lane;
  std::vector<OpId> ops;
  std::vector<StorageId> gradients;
  for (const BucketOps& bucket : buckets) {
    const std::vector<OpId> moved = moved_of(bucket);
    ops.insert(ops.end(), moved.begin(), moved.end());
    gradients.push_back(bucket.gradient);
  }
  // The last accumulate of backward: what follows on the compute lane (casts of the shard) writes gradients too, so
  // look at weight-gradient operations only, by leaving the optimizer part of the order out.
  const OpId optimizer = buckets.front().cast_up != kNone ? buckets.front().cast_up : buckets.front().sum_squares;
  const std::size_t end = calls_of(schedule, program, {&optimizer, 1}).front();
  std::vector<std::size_t> calls = calls_of(schedule, program, ops);
  const auto last = last_writers(schedule, program, gradients, compute, end);

  OrderEdits edits(program);
  std::size_t next = 0;  // of `calls`
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!last[b]) throw std::logic_error("no operation writes storage " + schedule.storages[gradients[b]].name);
    std::vector<Call> moved;
    for (const OpId op : moved_of(buckets[b])) {
      moved.push_back(program.order[calls[next++]]);
      moved.back().waits.clear();
      if (op != buckets[b].cast_down) lowered.free.push_back(op);
    }
    edits.insert({last[b]->call, last[b]->within + 1}, std::move(moved));
  }
  for (const std::size_t call : calls) edits.remove(call);
  edits.apply();
}

void add_gates(const Scenario& scenario, Gates& gates) {
  gates.above_one("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, Parallel::kReplicas,
                  scenario.parallel.replicas());
  gates.trains("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
  gates.off_with_units("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
}

}  // namespace

std::vector<std::vector<BucketOps>> bucket_ops_by_role(const Lowered& lowered) {
  std::vector<std::vector<BucketOps>> buckets(lowered.schedule.programs.size());
  for (const BucketOps& ops : lowered.bucket_ops) buckets[ops.role].push_back(ops);
  return buckets;
}

void rewrite_overlap_grad_reduce(Lowered& lowered) {
  const std::vector<std::vector<BucketOps>> buckets = bucket_ops_by_role(lowered);
  for (std::size_t role = 0; role < buckets.size(); ++role)
    if (!buckets[role].empty()) rewrite_role(lowered, lowered.schedule.programs[role], buckets[role]);
}

OverlapMode overlap_grad_reduce_mode() {
  return {.name = "overlap_grad_reduce",
          .meaning = "gradient buckets are reduced while backward goes on",
          .knob = "overlap_grad_reduce",
          .on = &Overlap::overlap_grad_reduce,
          .applies = [](const Parallel& p) { return !p.shards_gradients(); },
          .is_meant = [](const Overlap& o) { return !o.overlap_param_gather; },
          .gates = add_gates,
          .rewrite = [](Lowered& lowered, const Scenario&, const Gates&) { rewrite_overlap_grad_reduce(lowered); },
          .stage = RewriteStage::attach_data_parallel};
}

}  // namespace stretto
