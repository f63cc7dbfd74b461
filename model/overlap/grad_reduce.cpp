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
// align_grad_reduce, for several stages: no stage reduces while other stages compute and wait for it. With virtual
// stages all buckets of a chunk start together. Stage s starts them after its backward unit number u_c + s, where u_c
// is the last unit of chunk c, or after its whole backward pass when there is no such unit. All stages come to that
// unit at about the same time. Without virtual stages the first stage, which ends last, reduces as above, and all other
// stages reduce after their backward pass, while the pipeline drains (Megatron-LM d98e8a64,
// core/pipeline_parallel/schedules.py:1445, 2433 and 2460).
// Edges:   the last compute operation of stage s's backward unit u_c + s  →  RS of every bucket of chunk c
//
// reduce_scatter_with_fp32_accumulation: an all-to-all of bf16 and an f32 sum of the received parts replace the
// reduce-scatter. Buckets share the memory of the received parts, so a bucket's sum is computed when the next bucket is
// ready, before the next all-to-all (Megatron-LM); the last bucket's sum is computed after the backward pass.
// Edges:   all-to-all b  →  sum b  →  all-to-all b + 1, derived
// Exposed: f_b = max(r_b, f_{b−1} + s_{b−1}) + c_b, the sums s_b, and the time that the compute lane waits for f_{b−1}
//          at r_b.
#include "model/overlap/grad_reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
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

// align_grad_reduce of one stage: where each bucket goes, given the last operation that writes its gradients. `after`:
// the place after the backward pass. Places ascend, because buckets keep their order.
std::vector<OrderPosition> aligned(const Lowered& lowered, const Program& program,
                                   const std::vector<OrderPosition>& last, std::size_t stage, OrderPosition after) {
  std::vector<std::size_t> ends;                      // [backward unit] the index after its last call
  std::vector<std::optional<std::size_t>> last_unit;  // [chunk]
  const Call* before = nullptr;
  for (std::size_t c = 0; c < after.call; ++c) {
    const Call& call = program.order[c];
    const auto& backward = lowered.backward_blocks;
    if (std::find(backward.begin(), backward.end(), call.block) == backward.end()) continue;
    if (!before || before->chunk != call.chunk || before->micro_batch != call.micro_batch) ends.push_back(0);
    ends.back() = c + 1;
    const auto chunk = static_cast<std::size_t>(call.chunk);
    last_unit.resize(std::max(last_unit.size(), chunk + 1));
    last_unit[chunk] = ends.size() - 1;
    before = &call;
  }
  std::vector<OrderPosition> places;
  for (const OrderPosition& writer : last) {
    const auto chunk = static_cast<std::size_t>(program.order[writer.call].chunk);
    OrderPosition place = after;
    if (chunk < last_unit.size() && last_unit[chunk] && *last_unit[chunk] + stage < ends.size())
      place = {ends[*last_unit[chunk] + stage], 0};
    place = std::max(place, {writer.call, writer.within + 1});  // weight gradients may be put off
    places.push_back(places.empty() ? place : std::max(place, places.back()));
  }
  return places;
}

// Returns the last operation on `lane` before a call.
std::optional<OrderPosition> last_before(const Schedule& schedule, const Program& program, std::size_t call,
                                         LaneId lane) {
  while (call-- > 0) {
    const Call& before = program.order[call];
    for (std::uint32_t within = before.count; within-- > 0;)
      if (schedule.operations[schedule.blocks[before.block].ops[before.first + within]].lane == lane)
        return OrderPosition{call, within};
  }
  return std::nullopt;
}

// When a stage starts its reductions, with and without align_grad_reduce.
enum class Start : std::uint8_t { when_ready, with_unit, after_backward };

void rewrite_role(Lowered& lowered, std::size_t role, const std::vector<BucketOps>& buckets, Start start) {
  Program& program = lowered.schedule.programs[role];
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
  const auto last = last_writers(schedule, program, gradients, end);
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

  std::vector<OrderPosition> places;
  for (const std::size_t b : ready) places.push_back(*last[b]);
  const OrderPosition after{*std::min_element(calls.begin(), calls.end()), 0};
  switch (start) {
    case Start::when_ready:
      for (OrderPosition& place : places) ++place.within;
      break;
    case Start::with_unit:
      places = aligned(lowered, program, places, role, after);
      break;
    case Start::after_backward:
      std::fill(places.begin(), places.end(), after);
      break;
  }

  OrderEdits edits(program);
  std::size_t next = calls.size();
  for (std::size_t i = ready.size(); i-- > 0;) {  // when several insertions have one position, the latest comes first
    std::vector<Call> moved;
    next -= ops[i].size();
    for (std::size_t o = 0; o < ops[i].size(); ++o) {
      moved.push_back(program.order[calls[next + o]]);
      moved.back().waits.clear();
      if (schedule.operations[ops[i][o]].lane != compute) lowered.free.push_back(ops[i][o]);
      // Megatron-LM's stream of the reduction waits for what compute has when the reduction is asked for.
      if (start == Start::when_ready || ops[i][o] != buckets[ready[i]].reduction) continue;
      if (const auto before = last_before(schedule, program, places[i].call, compute); before && places[i].within == 0)
        moved.back().waits.push_back({EdgeKind::finish_start, address_of(schedule, program, *before)});
    }
    edits.insert(places[i], std::move(moved));
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

void add_align_gates(const Scenario& scenario, Gates& gates) {
  const char* knob = "align_grad_reduce";
  const bool asked = scenario.overlap.align_grad_reduce;
  gates.add({.knob = knob,
             .needs = "overlap_grad_reduce = true",
             .source = megatron("training/training.py:4346"),
             .asked = asked,
             .open = scenario.overlap.overlap_grad_reduce,
             .why = "it needs overlap_grad_reduce = true"});
  gates.above_one(knob, asked, Parallel::kReplicas, scenario.parallel.replicas());
  gates.trains(knob, asked, scenario);
  gates.off_with_units(knob, asked, scenario);
  gates.above_one(knob, asked, "pipeline_model_parallel_size", scenario.parallel.pipeline_model_parallel_size,
                  megatron("core/pipeline_parallel/schedules.py, forward_backward_no_pipelining does not read it"));
  gates.add({.knob = knob,
             .needs = "pipeline_schedule = 1f1b",
             .source = kOwnGate,
             .asked = asked,
             .open = scenario.parallel.pipeline_schedule == PipelineSchedule::one_f_one_b,
             .why = "pipeline_schedule is " + std::string(name_of(scenario.parallel.pipeline_schedule)) +
                    ", whose stages all end at about the same time"});
}

void add_gates(const Scenario& scenario, Gates& gates) {
  gates.above_one("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, Parallel::kReplicas,
                  scenario.parallel.replicas(), bridge("training/comm_overlap.py:576"));
  gates.trains("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
  gates.off_with_units("overlap_grad_reduce", scenario.overlap.overlap_grad_reduce, scenario);
  add_accumulation_gates(scenario, gates);
  add_align_gates(scenario, gates);
}

}  // namespace

std::vector<std::vector<BucketOps>> bucket_ops_by_role(const Lowered& lowered) {
  std::vector<std::vector<BucketOps>> buckets(lowered.schedule.programs.size());
  // Experts that no other rank has are not reduced.
  for (const BucketOps& ops : lowered.bucket_ops)
    if (ops.reduction != kNone) buckets[ops.role].push_back(ops);
  return buckets;
}

void rewrite_overlap_grad_reduce(Lowered& lowered, const Scenario& scenario, const Gates& gates) {
  const bool aligns = gates.acts("align_grad_reduce");
  const bool has_chunks = scenario.parallel.virtual_pipeline_model_parallel_size > 1;
  const std::vector<std::vector<BucketOps>> buckets = bucket_ops_by_role(lowered);
  for (std::size_t role = 0; role < buckets.size(); ++role) {
    if (buckets[role].empty()) continue;
    Start start = Start::when_ready;
    if (aligns && has_chunks)
      start = Start::with_unit;
    else if (aligns && role > 0)
      start = Start::after_backward;
    rewrite_role(lowered, role, buckets[role], start);
  }
}

OverlapMode overlap_grad_reduce_mode() {
  return {.name = "overlap_grad_reduce",
          .meaning = "gradient buckets are reduced while backward goes on",
          .knob = "overlap_grad_reduce",
          .on = &Overlap::overlap_grad_reduce,
          .applies = [](const Parallel& p) { return !p.shards_gradients(); },
          .is_meant = [](const Overlap& o) { return !o.overlap_param_gather; },
          .gates = add_gates,
          .rewrite = rewrite_overlap_grad_reduce,
          .stage = RewriteStage::attach_data_parallel};
}

}  // namespace stretto
