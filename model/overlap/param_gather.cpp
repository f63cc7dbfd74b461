// overlap_param_gather (Megatron-LM): the all-gather of updated parameters moves from the end of the step into the next
// step's forward pass, bucket by bucket, one bucket ahead of its first use.
//
// Edges:   AdamW_b of the previous step  →  AG_b  →  first use of bucket b, derived
//          first use of bucket k starts  →  AG_{k+1} starts   (prefetch distance 1; start→start)
// Order:   buckets in the order of their first use in forward; buckets with one first user are gathered together.
// Exposed: s_k = max(t_k, g_k), g_{k+1} = s_k + a_{k+1};  Σ max(0, g_k − t_k): the first bucket in full.
//
// align_param_gather, for stages of several chunks: all buckets of a chunk are gathered together, those of the first
// two chunks at the beginning of the step, and those of chunk c + 1 when stage s starts its forward unit number u_c −
// s, where u_c is the first unit of chunk c. All stages do so at about one moment, so that no stage computes slower
// because of concurrent communication while others wait for it.
// Edges:   start of forward unit u_c − s  →  AG of chunk c + 1 starts
//
// overlap_param_gather_with_optimizer_step, for such stages: AdamW updates the first chunk first, and the first chunk's
// buckets are gathered concurrently with the updates of the other chunks, in the previous step.
// Edges:   AdamW of the first chunk  →  AG of the first chunk, derived
// Exposed: max(0, a − u), where a is the time of its gathers and u that of the updates of the other chunks.
//
// With fp8_param_gather the weights of linear layers have buckets of their own, and the other buckets are gathered in
// bf16. The cast of a shard stays where the plain schedule has it, before everything else; the cast back comes right
// before the first use.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "model/overlap/grad_reduce.hpp"
#include "model/overlap/mode.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

struct Gather {
  OrderPosition first_use;
  BucketOps ops;
  Call call;
  std::optional<Call> cast_back;  // the cast back from fp8
};

// Removes the gathers of a role from its order and returns them.
std::vector<Gather> take_gathers(const Schedule& schedule, const std::vector<BucketOps>& buckets, Program& program) {
  std::vector<OpId> ops, casts, casts_back;
  std::vector<StorageId> parameters;
  for (const BucketOps& bucket : buckets) {
    ops.push_back(bucket.all_gather);
    parameters.push_back(bucket.parameter);
    if (bucket.to_fp8 == kNone) continue;
    casts.push_back(bucket.to_fp8);
    casts_back.push_back(bucket.from_fp8);
  }
  // The plain schedule holds the next step back until all parameters are gathered; that wait is removed.
  std::erase_if(program.order.front().waits,
                [&](const Edge& wait) { return std::find(ops.begin(), ops.end(), wait.on.op) != ops.end(); });
  std::vector<Gather> gathers;
  OrderEdits edits(program);
  for (const std::size_t call : calls_of(schedule, program, ops)) {
    gathers.push_back({{}, buckets[gathers.size()], program.order[call], std::nullopt});
    gathers.back().call.sequence = 0;
    edits.remove(call);
  }
  // A cast reads parameters, but is not a use that needs the gather.
  std::vector<Call> first_calls;
  for (const std::size_t call : calls_of(schedule, program, casts)) {
    first_calls.push_back(program.order[call]);
    edits.remove(call);
  }
  auto gather = gathers.begin();
  for (const std::size_t call : calls_of(schedule, program, casts_back)) {
    while (gather->ops.from_fp8 == kNone) ++gather;
    gather->cast_back = program.order[call];
    gather++->cast_back->sequence = 0;
    edits.remove(call);
  }
  edits.apply();
  program.order.insert(program.order.begin() + 1, first_calls.begin(), first_calls.end());
  const auto first = first_users(schedule, program, parameters, 1 + first_calls.size());
  for (std::size_t g = 0; g < gathers.size(); ++g) {
    if (!first[g]) throw std::logic_error("no operation uses storage " + schedule.storages[parameters[g]].name);
    gathers[g].first_use = *first[g];
  }
  std::stable_sort(gathers.begin(), gathers.end(),
                   [](const Gather& a, const Gather& b) { return a.first_use < b.first_use; });
  return gathers;
}

// The release of each gather: an operation that has started. None: the beginning of the step.
using Releases = std::vector<std::optional<OrderPosition>>;

// Returns as release of a bucket the first use of the previous bucket; of several buckets with one first use, the
// release is the first use of the bucket before them all. A small bucket of norms is gathered with the next bucket: as
// the bucket ahead it would leave nothing to hide the next gather. Sequence parallelism puts norms in buckets of their
// own, and fp8_param_gather all parameters that are not gathered in fp8: a bucket with less than an eighth of the next
// bucket's elements (assumed) counts as small.
Releases one_ahead(const Schedule& schedule, const std::vector<Gather>& gathers) {
  const auto elements = [&](std::size_t g) { return schedule.storages[gathers[g].ops.parameter].elements; };
  const auto is_small = [&](std::size_t g) {
    return gathers[g].ops.tp_all_reduce != kNone ||
           (!gathers[g].cast_back && gathers[g + 1].cast_back && 8 * elements(g) < elements(g + 1));
  };
  Releases releases(gathers.size());
  std::size_t group = 0;  // its first gather
  for (std::size_t g = 1; g < gathers.size(); ++g) {
    if (gathers[g].first_use == gathers[g - 1].first_use || is_small(g - 1)) {
      releases[g] = releases[g - 1];
      continue;
    }
    releases[g] = gathers[group].first_use;
    group = g;
  }
  return releases;
}

Releases aligned(const Lowered& lowered, const Program& program, const std::vector<Gather>& gathers,
                 std::size_t stage) {
  // Every chunk has a forward part. `units` are the begins of this stage's forward units, `first_unit` the first unit
  // of each chunk.
  std::vector<OrderPosition> units;
  std::vector<std::size_t> first_unit;
  const Call* last = nullptr;
  for (std::size_t c = 0; c < program.order.size(); ++c) {
    const Call& call = program.order[c];
    const auto& forward = lowered.forward_blocks;
    if (std::find(forward.begin(), forward.end(), call.block) == forward.end()) continue;
    if (last && last->chunk == call.chunk && last->micro_batch == call.micro_batch) continue;
    const auto chunk = static_cast<std::size_t>(call.chunk);
    if (chunk == first_unit.size()) first_unit.push_back(units.size());
    units.push_back({c, 0});
    last = &call;
  }
  Releases releases;
  for (const Gather& gather : gathers) {
    const auto chunk = static_cast<std::size_t>(program.order[gather.first_use.call].chunk);
    releases.push_back(chunk < 2 ? std::nullopt : std::optional(units[first_unit[chunk - 1] - stage]));
  }
  return releases;
}

// Returns the position after the last update of the first chunk.
OrderPosition after_first_chunk(const Schedule& schedule, const Program& program,
                                const std::vector<BucketOps>& buckets) {
  std::vector<OpId> updates;
  for (const BucketOps& bucket : buckets)
    if (bucket.first_chunk) updates.push_back(bucket.adamw);
  const std::vector<std::size_t> calls = calls_of(schedule, program, updates);
  return {*std::max_element(calls.begin(), calls.end()), 1};
}

void rewrite_role(Lowered& lowered, std::size_t role, const std::vector<BucketOps>& buckets, bool align,
                  bool with_optimizer_step) {
  Schedule& schedule = lowered.schedule;
  Program& program = schedule.programs[role];
  std::vector<Gather> gathers = take_gathers(schedule, buckets, program);
  const std::size_t after_casts =
      1 + static_cast<std::size_t>(std::count_if(gathers.begin(), gathers.end(),
                                                 [](const Gather& gather) { return gather.cast_back.has_value(); }));
  const Releases releases = align ? aligned(lowered, program, gathers, role) : one_ahead(schedule, gathers);

  OrderEdits edits(program);
  for (std::size_t g = gathers.size(); g-- > 0;) {
    Gather& gather = gathers[g];
    // The cast back splits the block, so that earlier operations of the block need not wait.
    if (gather.cast_back) {
      edits.insert(gather.first_use, {*gather.cast_back});
      lowered.free.push_back(gather.ops.from_fp8);  // parts of a GEMM on another compute lane wait for it too
    } else {
      edits.cut(gather.first_use);
    }
    lowered.free.push_back(gather.ops.all_gather);
    gather.call.waits.clear();
    OrderPosition at;
    if (gather.ops.to_fp8 != kNone) at = {after_casts, 0};
    if (with_optimizer_step && gather.ops.first_chunk) {
      at = after_first_chunk(schedule, program, buckets);
    } else if (releases[g]) {
      gather.call.waits.push_back({EdgeKind::start_start, address_of(schedule, program, *releases[g])});
      at = {releases[g]->call, releases[g]->within + 1};
    }
    edits.insert(at, {std::move(gather.call)});
  }
  edits.apply();
}

void rewrite(Lowered& lowered, const Scenario& scenario, const Gates& gates) {
  rewrite_overlap_grad_reduce(lowered, scenario, gates);
  const std::vector<std::vector<BucketOps>> buckets = bucket_ops_by_role(lowered);
  for (std::size_t role = 0; role < buckets.size(); ++role)
    if (!buckets[role].empty())
      rewrite_role(lowered, role, buckets[role], gates.acts("align_param_gather"),
                   gates.acts("overlap_param_gather_with_optimizer_step"));
}

void add_fp8_gates(const Scenario& scenario, Gates& gates) {
  const char* knob = "fp8_param_gather";
  const bool asked = scenario.overlap.fp8_param_gather;
  gates.above_one(knob, asked, Parallel::kReplicas, scenario.parallel.replicas());
  gates.trains(knob, asked, scenario);
  gates.off_with_units(knob, asked, scenario);
  gates.add({.knob = knob,
             .needs = "precision = bf16",
             .kind = GateKind::error,
             .source = kOwnGate,
             .asked = asked,
             .open = scenario.training.compute_dtype() == Dtype::bf16,
             .got = scenario.training.precision,
             .why = "the optimizer keeps the parameters in fp32, and what goes round is cast from them"});
  gates.add({.knob = knob,
             .needs = "use_distributed_optimizer = true",
             .kind = GateKind::error,
             .source = megatron("arguments.py:1096"),
             .asked = asked,
             .open = scenario.parallel.shards_optimizer(),
             .got = "false",
             .why = "no parameters are gathered"});
  gates.add(
      {.knob = knob,
       .needs = "a model in fp8 (--fp8-format)",
       .kind = GateKind::acts,
       .source = megatron("core/transformer/transformer_config.py:1566, an error"),
       .wider = "parameters of a bf16 model are cast to fp8 for the gather and back after it; Megatron-LM gathers what "
                "an fp8 model keeps in fp8",
       .asked = asked});
}

void add_gates(const Scenario& scenario, Gates& gates) {
  const Overlap& o = scenario.overlap;
  const std::int64_t replicas = scenario.parallel.replicas(),
                     vp = scenario.parallel.virtual_pipeline_model_parallel_size;
  const auto refused = [&](const char* knob, bool asked, const char* needs, bool open, const std::string& got,
                           const char* place, const char* why) {
    gates.add({.knob = knob,
               .needs = needs,
               .kind = GateKind::error,
               .source = megatron(place),
               .asked = asked,
               .open = open,
               .got = got,
               .why = why});
  };
  const char* knob = "overlap_param_gather";
  gates.above_one(knob, o.overlap_param_gather, Parallel::kReplicas, replicas, bridge("training/comm_overlap.py:576"));
  gates.trains(knob, o.overlap_param_gather, scenario, megatron("arguments.py:1845, --freeze-all-layers"));
  gates.off_with_units(knob, o.overlap_param_gather, scenario);
  refused(knob, o.overlap_param_gather, "overlap_grad_reduce = true", o.overlap_grad_reduce, "false",
          "arguments.py:1028", "");
  refused(knob, o.overlap_param_gather, "use_distributed_optimizer = true", scenario.parallel.shards_optimizer(),
          "false", "arguments.py:1025", "every rank updates all parameters, and none are gathered");
  // bucket_size applies to buckets of gradients and of parameters.
  gates.add({.knob = "bucket_size",
             .needs = "overlap_grad_reduce = true",
             .source = megatron("core/distributed/distributed_data_parallel.py:136"),
             .asked = o.bucket_size > 0,
             .open = o.overlap_grad_reduce,
             .why = "it needs overlap_grad_reduce = true; the gradients of a model chunk are one bucket"});
  const char* aligned = "align_param_gather";
  gates.add({.knob = aligned,
             .needs = "overlap_param_gather = true",
             .source = megatron("core/distributed/distributed_data_parallel.py:549, nothing else reads it"),
             .asked = o.align_param_gather,
             .open = o.overlap_param_gather,
             .why = "it needs overlap_param_gather = true"});
  gates.above_one(aligned, o.align_param_gather, Parallel::kReplicas, replicas);
  gates.above_one(aligned, o.align_param_gather, "virtual_pipeline_model_parallel_size", vp,
                  megatron("arguments.py:1013, with a warning"));
  add_fp8_gates(scenario, gates);
  const char* with_step = "overlap_param_gather_with_optimizer_step";
  const bool asked = o.overlap_param_gather_with_optimizer_step;
  gates.above_one(with_step, asked, Parallel::kReplicas, replicas);
  gates.trains(with_step, asked, scenario);
  gates.off_with_units(with_step, asked, scenario);
  refused(with_step, asked, "overlap_param_gather = true", o.overlap_param_gather, "false", "arguments.py:1069", "");
  refused(with_step, asked, "virtual_pipeline_model_parallel_size above 1", vp > 1, std::to_string(vp),
          "arguments.py:1071", "the first model chunk is gathered during the updates of the others");
  gates.add({.knob = with_step,
             .needs = "fp8_param_gather = false",
             .source = kOwnGate,
             .asked = asked,
             .open = !o.fp8_param_gather,
             .why = "fp8_param_gather is on, whose shards are cast when the next step begins"});
}

}  // namespace

OverlapMode overlap_param_gather_mode() {
  return {.name = "overlap_param_gather",
          .meaning = "also: parameter buckets are gathered while the next forward goes on (needs overlap_grad_reduce)",
          .knob = "overlap_param_gather",
          .on = &Overlap::overlap_param_gather,
          .applies = [](const Parallel& p) { return p.shards_optimizer() && !p.shards_gradients(); },
          .configure = [](Overlap& o) { o.overlap_grad_reduce = true; },
          .clear = [](Overlap& o) { o.overlap_param_gather_with_optimizer_step = false; },
          .gates = add_gates,
          .rewrite = rewrite,
          .stage = RewriteStage::attach_data_parallel};
}

}  // namespace stretto
