// overlap_grad_reduce (Megatron-LM DistributedDataParallelConfig): the reduce-scatter of a bucket starts as soon as the
// last weight gradient in it is complete, while backward goes on with earlier layers.
//
// Edges:   last accumulate into bucket b, last micro-batch  →  RS_b  →  norm (all buckets, after backward), derived
// Order:   buckets are serialised among themselves on the dp lane, in the order in which they become ready.
// Exposed: f_b = max(r_b, f_{b−1}) + c_b;  exposed = max(0, f_B − t_bwd_end): the last bucket and the backlog.
//
// With several instances of the optimizer an all-reduce of the shard follows on a lane of its own, concurrent with the
// reduce-scatter of the next bucket: g_b = max(f_b, g_{b−1}) + a_b. (Megatron-LM has one stream for both, so that its
// next reduce-scatter waits for the all-reduce; PyTorch's FSDP2 has two.)
//
// reduce_scatter_with_fp32_accumulation: an all-to-all of bf16 and an f32 sum of the received parts replace the
// reduce-scatter. Buckets share the memory of the received parts, so a bucket's sum is computed when the next bucket is
// ready, before the next all-to-all (Megatron-LM); the last bucket's sum is computed after the backward pass.
// Edges:   all-to-all b  →  sum b  →  all-to-all b + 1, derived
// Exposed: f_b = max(r_b, f_{b−1} + s_{b−1}) + c_b, the sums s_b, and the time that the compute lane waits for f_{b−1}
//          at r_b.
#include "model/overlap/grad_reduce.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "model/overlap/mode.hpp"
#include "model/schedule/order.hpp"

namespace stretto {

namespace {

// Returns the operations of the plain schedule between backward and the norm: sums over tensor-parallel ranks, the cast
// on the compute lane, then the reductions. `drained` is the previous bucket, whose parts must be summed first.
std::vector<OpId> moved_of(const BucketOps& ops, const BucketOps* drained) {
  std::vector<OpId> moved;
  for (const OpId op : {ops.tp_all_reduce, ops.cast_down, drained ? drained->local_sum : kNone, ops.reduction,
                        ops.instances_all_reduce})
    if (op != kNone) moved.push_back(op);
  return moved;
}

void rewrite_role(Lowered& lowered, Program& program, const std::vector<BucketOps>& buckets) {
  const Schedule& schedule = lowered.schedule;
  const LaneId compute = schedule.operations[buckets.front().adamw].lane;
  std::vector<StorageId> gradients;
  for (const BucketOps& bucket : buckets) gradients.push_back(bucket.gradient);
  // Finds the last accumulate of backward. Later operations on the compute lane (casts and sums of the shard) write
  // gradients too, so the search leaves out the optimizer part of the order.
  const BucketOps& first = buckets.front();
  const OpId optimizer = first.local_sum != kNone ? first.local_sum
                         : first.cast_up != kNone ? first.cast_up
                                                  : first.sum_squares;
  const std::size_t end = calls_of(schedule, program, {&optimizer, 1}).front();
  const auto last = last_writers(schedule, program, gradients, compute, end);
  // Buckets in the order in which they become ready.
  std::vector<std::size_t> ready(buckets.size());
  std::iota(ready.rbegin(), ready.rend(), std::size_t{0});
  for (const std::size_t b : ready)
    if (!last[b]) throw std::logic_error("no operation writes storage " + schedule.storages[gradients[b]].name);
  std::stable_sort(ready.begin(), ready.end(), [&](std::size_t a, std::size_t b) { return *last[a] < *last[b]; });

  std::vector<std::vector<OpId>> ops;  // [place in `ready`]
  std::vector<OpId> all;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    ops.push_back(moved_of(buckets[ready[i]], i > 0 ? &buckets[ready[i - 1]] : nullptr));
    all.insert(all.end(), ops.back().begin(), ops.back().end());
  }
  const std::vector<std::size_t> calls = calls_of(schedule, program, all);

  OrderEdits edits(program);
  std::size_t next = calls.size();
  for (std::size_t i = ready.size(); i-- > 0;) {  // when several insertions have one position, the latest comes first
    const std::size_t b = ready[i];
    std::vector<Call> moved;
    next -= ops[i].size();
    for (std::size_t o = 0; o < ops[i].size(); ++o) {
      moved.push_back(program.order[calls[next + o]]);
      moved.back().waits.clear();
      if (schedule.operations[ops[i][o]].lane != compute) lowered.free.push_back(ops[i][o]);
    }
    edits.insert({last[b]->call, last[b]->within + 1}, std::move(moved));
  }
  for (const std::size_t call : calls) edits.remove(call);
  edits.apply();
}

void add_accumulation_gates(const Scenario& scenario, Gates& gates) {
  const char* knob = "reduce_scatter_with_fp32_accumulation";
  const bool asked = scenario.overlap.reduce_scatter_with_fp32_accumulation;
  gates.above_one(knob, asked, Parallel::kReplicas, scenario.parallel.replicas());
  gates.trains(knob, asked, scenario);
  gates.off_with_units(knob, asked, scenario);
  gates.add({.knob = knob,
             .needs = "use_distributed_optimizer = true",
             .source = megatron("core/distributed/param_and_grad_buffer.py:766"),
             .asked = asked,
             .open = scenario.parallel.shards_optimizer(),
             .why = "use_distributed_optimizer is off, and gradients are all-reduced"});
  gates.add({.knob = knob,
             .needs = "grad_reduce_in_fp32 = false",
             .source = megatron("arguments.py:1219, with a warning"),
             .asked = asked,
             .open = !scenario.overlap.grad_reduce_in_fp32,
             .why = "grad_reduce_in_fp32 is on, and a reduce-scatter sums in fp32"});
  const std::int64_t instances = scenario.parallel.num_distributed_optimizer_instances;
  gates.add({.knob = knob,
             .needs = "num_distributed_optimizer_instances = 1",
             .kind = GateKind::error,
             .source = megatron("core/distributed/param_and_grad_buffer.py:233"),
             .asked = asked,
             .open = instances == 1,
             .got = std::to_string(instances)});
}

void add_gates(const Scenario& scenario, Gates& gates) {
  gates.above_one("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, Parallel::kReplicas,
                  scenario.parallel.replicas(), bridge("training/comm_overlap.py:576"));
  gates.trains("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
  gates.off_with_units("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
  add_accumulation_gates(scenario, gates);
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
