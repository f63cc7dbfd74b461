#include <algorithm>
#include <string>

#include "model/lower/blocks.hpp"
#include "model/lower/builder.hpp"
#include "model/lower/lower.hpp"
#include "model/lower/parameters.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

constexpr LaneId kCompute = 0;

// Lanes and communicators; those of an axis of size 1 do not exist.
struct Lanes {
  LaneId dp = 0, tp = 0, all = 0;
  std::uint32_t dp_communicator = 0, tp_communicator = 0, all_communicator = 0;
};

// tp varies fastest, as Megatron-LM numbers ranks: its groups are neighbours.
Lanes add_mesh(Schedule& schedule, const Scenario& scenario) {
  const std::int64_t dp = scenario.parallel.data_parallel_size, tp = scenario.parallel.tensor_model_parallel_size;
  std::vector<MeshAxis> axes = {{Coord::dp, dp}};
  if (tp > 1) axes.push_back({Coord::tp, tp});
  schedule.mesh = Mesh(axes);
  schedule.placement.ranks_per_device =
      scenario.cluster.ranks_per_device > 0 ? std::min(scenario.cluster.ranks_per_device, dp * tp) : dp * tp;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  Lanes lanes;
  const auto add = [&](Coord axis, std::int64_t size, LaneId& lane, std::uint32_t& communicator) {
    if (size == 1) return;
    lane = static_cast<LaneId>(schedule.lanes.size());
    communicator = static_cast<std::uint32_t>(schedule.communicators.size());
    schedule.lanes.push_back({name_of(axis), LaneKind::communication, -1});
    schedule.communicators.push_back({name_of(axis), {axis}, CommEngine::nic, 1, size});
  };
  add(Coord::dp, dp, lanes.dp, lanes.dp_communicator);
  add(Coord::tp, tp, lanes.tp, lanes.tp_communicator);
  lanes.all = dp > 1 ? lanes.dp : lanes.tp;
  lanes.all_communicator = dp > 1 ? lanes.dp_communicator : lanes.tp_communicator;
  if (dp > 1 && tp > 1) {
    lanes.all_communicator = static_cast<std::uint32_t>(schedule.communicators.size());
    schedule.communicators.push_back({"dp-tp", {Coord::dp, Coord::tp}, CommEngine::nic, 1, dp * tp});
  }
  return lanes;
}

// Backward of layers [begin, end), which are recomputed together: forward again, of the last only what it needs itself.
void append_recomputed(const Schedule& schedule, const ModelBlocks& blocks, std::int64_t begin, std::int64_t end,
                       std::int64_t mb, std::vector<Call>& order) {
  for (std::int64_t l = begin; l < end; ++l) {
    order.push_back(call_block(schedule, blocks.layer_recompute, l, mb));
    if (l + 1 == end) order.back().count = blocks.recompute_inner;
  }
  for (std::int64_t l = end; l-- > begin;) order.push_back(call_block(schedule, blocks.layer_backward, l, mb));
}

// Forward and backward of every micro-batch. One micro-batch is in flight at a time without pipeline parallelism.
void append_micro_batches(const Schedule& schedule, const ModelBlocks& blocks, const Scenario& scenario,
                          std::vector<Call>& order) {
  const std::int64_t layers = scenario.model.num_layers;
  const Recompute& recompute = scenario.training.recompute;
  for (std::int64_t mb = 0; mb < scenario.num_microbatches(); ++mb) {
    order.push_back(call_block(schedule, blocks.embedding_forward, 0, mb));
    for (std::int64_t l = 0; l < layers; ++l) order.push_back(call_block(schedule, blocks.layer_forward, l, mb));
    order.push_back(call_block(schedule, blocks.head_forward, 0, mb));
    order.push_back(call_block(schedule, blocks.head_backward, 0, mb));
    for (std::int64_t end = layers; end > 0;) {
      std::int64_t begin = end - 1;
      if (recompute.is_full(begin)) {
        begin -= begin % recompute.group();
        append_recomputed(schedule, blocks, begin, end, mb, order);
      } else {
        order.push_back(call_block(schedule, blocks.layer_backward, begin, mb));
      }
      end = begin;
    }
    order.push_back(call_block(schedule, blocks.embedding_backward, 0, mb));
  }
}

Edge finished(const Schedule& schedule, const Program& program, std::size_t call, int steps_ago = 0) {
  return {EdgeKind::finish_start, address_of(schedule, program, {call, program.order[call].count - 1}, steps_ago)};
}

}  // namespace

Lowered lower_plain(const Scenario& scenario) {
  const std::int64_t dp = scenario.parallel.data_parallel_size, tp = scenario.parallel.tensor_model_parallel_size;
  const bool reduces = dp > 1;

  Lowered lowered;
  Schedule& schedule = lowered.schedule;
  schedule.name = "plain";
  schedule.compute_dtype = scenario.training.precision == "fp64" ? Dtype::f64 : Dtype::f32;
  const Lanes lanes = add_mesh(schedule, scenario);
  const ModelParameters parameters = add_parameters(schedule, scenario, lowered);
  const std::vector<Bucket>& buckets = lowered.buckets;

  // metrics = {loss, squared gradient norm}: summed over ranks in one all-reduce.
  const TensorId metrics = add_tensor(schedule, "metrics", Dtype::f64, BufferKind::scalar, 1, 2);
  const View loss{metrics, 0, 0, 0, 1, 1, 1}, norm_squared{metrics, 0, 0, 1, 1, 1, 1};
  const TensorId hyper = add_tensor(schedule, "hyper", Dtype::f64, BufferKind::input, 1, 8);

  BlockShape shape;
  shape.model = scenario.model;
  shape.micro_batch_size = scenario.training.micro_batch_size;
  shape.micro_batches = scenario.num_microbatches();
  shape.slots = 1;
  shape.loss_scale = 1.0 / (double(dp) * double(shape.micro_batches) * double(shape.tokens()));
  shape.recompute = scenario.training.recompute;
  shape.tp = tp;
  shape.sequence_parallel = scenario.parallel.sequence_parallel && tp > 1;
  shape.tp_lane = lanes.tp;
  shape.tp_communicator = lanes.tp_communicator;
  const ModelBlocks blocks = add_model_blocks(schedule, shape, parameters.tensors, loss, kCompute);

  lowered.column_parallel = blocks.column_parallel;

  Block zero{"zero", {}, {}};
  add_operation(schedule, zero,
                {"metrics.zero", Fill{2, 0}, kCompute, Phase::setup, {write(whole(schedule, metrics))}});
  const bool casts = reduces && !scenario.overlap.grad_reduce_in_fp32;
  const std::vector<BucketTensors> tensors = add_bucket_tensors(schedule, lowered, dp, casts);
  for (std::size_t b = 0; b < buckets.size(); ++b)
    add_operation(schedule, zero,
                  {"gradients.zero.b" + std::to_string(b),
                   Fill{buckets[b].elements, 0},
                   kCompute,
                   Phase::setup,
                   {write(whole(schedule, tensors[b].gradient))}});
  const BlockId zero_block = add_block(schedule, std::move(zero));

  schedule.programs = {{"rank", {}}};
  Program& program = schedule.programs.front();
  std::vector<Call>& order = program.order;
  order.push_back(call_block(schedule, zero_block));
  append_micro_batches(schedule, blocks, scenario, order);

  auto place = [&](Operation operation) {
    const BlockId block = add_single(schedule, std::move(operation));
    order.push_back(call_block(schedule, block));
    return schedule.blocks[block].ops.front();
  };
  auto wait_for = [&](OpId op, int steps_ago = 0) {
    order.back().waits.push_back({EdgeKind::finish_start, {op, 0, 0, 0, steps_ago}});
  };
  auto shard_of = [&](TensorId tensor, std::int64_t elements) {
    return View{tensor, 0, 0, Expr(Coord::dp) * Expr(elements), 1, elements, elements};
  };

  // Under sequence parallelism each rank has the gradients of replicated parameters for its tokens only.
  for (std::size_t b = 0; b < buckets.size() && shape.sequence_parallel; ++b) {
    if (!buckets[b].replicated) continue;
    const Edge ready = finished(schedule, program, order.size() - 1);
    lowered.bucket_ops[b].tp_all_reduce =
        place({"tp.all_reduce_norms.b" + std::to_string(b),
               Collective{CollectiveKind::all_reduce, lanes.tp_communicator, buckets[b].elements},
               lanes.tp,
               Phase::grad_sync,
               {accumulate(whole(schedule, tensors[b].gradient))}});
    order.back().waits.push_back(ready);
  }
  for (std::size_t b = 0; b < buckets.size() && reduces; ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t elements = buckets[b].elements, shard = elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    const TensorId reduced = casts ? tensors[b].low : tensors[b].gradient;
    const Edge accumulated = finished(schedule, program, order.size() - 1);
    if (casts) {
      ops.cast_down = place({"dp.cast_to_bf16" + suffix,
                             Cast{elements},
                             kCompute,
                             Phase::grad_sync,
                             {read(whole(schedule, tensors[b].gradient)), write(whole(schedule, reduced))}});
      if (ops.tp_all_reduce != kNone) wait_for(ops.tp_all_reduce);
    }
    const Edge ready = casts ? finished(schedule, program, order.size() - 1) : accumulated;
    ops.reduce_scatter = place({"dp.reduce_scatter" + suffix,
                                Collective{CollectiveKind::reduce_scatter, lanes.dp_communicator, elements},
                                lanes.dp,
                                Phase::grad_sync,
                                {read(whole(schedule, reduced)), write(shard_of(reduced, shard))}});
    // A reduce-scatter that follows another on the lane has the same compute before it: one edge says it.
    if (casts || b == 0) order.back().waits.push_back(ready);
    if (!casts && ops.tp_all_reduce != kNone && b != 0) wait_for(ops.tp_all_reduce);
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t shard = buckets[b].elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    if (casts) {
      ops.cast_up = place({"dp.cast_to_f32" + suffix,
                           Cast{shard},
                           kCompute,
                           Phase::grad_sync,
                           {read(shard_of(tensors[b].low, shard)), write(shard_of(tensors[b].gradient, shard))}});
      wait_for(ops.reduce_scatter);
    }
    ops.sum_squares = place({"norm.sum_squares" + suffix,
                             SumSquares{shard, buckets[b].replicated ? tp : 1},
                             kCompute,
                             Phase::optimizer,
                             {read(shard_of(tensors[b].gradient, shard)), accumulate(norm_squared)}});
    if (reduces && !casts) wait_for(ops.reduce_scatter);
    if (!reduces && ops.tp_all_reduce != kNone) wait_for(ops.tp_all_reduce);
  }
  OpId all_reduce = kNone;
  if (dp * tp > 1) {
    const Edge ready = finished(schedule, program, order.size() - 1);
    all_reduce = place({schedule.lanes[lanes.all].name + ".all_reduce_metrics",
                        Collective{CollectiveKind::all_reduce, lanes.all_communicator, 2},
                        lanes.all,
                        Phase::optimizer,
                        {accumulate(whole(schedule, metrics))}});
    order.back().waits.push_back(ready);
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t shard = buckets[b].elements / dp;
    lowered.bucket_ops[b].adamw =
        place({"adamw.b" + std::to_string(b),
               AdamW{shard, decayed_ranges(buckets[b], parameters.parts), dp},
               kCompute,
               Phase::optimizer,
               {read(shard_of(tensors[b].gradient, shard)), read(norm_squared), read(whole(schedule, hyper)),
                accumulate(shard_of(tensors[b].parameter, shard)), accumulate(whole(schedule, tensors[b].m)),
                accumulate(whole(schedule, tensors[b].v))}});
    if (b == 0 && all_reduce != kNone) wait_for(all_reduce);
  }
  for (std::size_t b = 0; b < buckets.size() && reduces; ++b) {
    const std::int64_t elements = buckets[b].elements, shard = elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    ops.all_gather =
        place({"dp.all_gather.b" + std::to_string(b),
               Collective{CollectiveKind::all_gather, lanes.dp_communicator, elements},
               lanes.dp,
               Phase::param_sync,
               {read(shard_of(tensors[b].parameter, shard)), write(whole(schedule, tensors[b].parameter))}});
    wait_for(ops.adamw);
  }
  // The next step starts when the parameters are whole again.
  if (reduces)
    order.front().waits.push_back({EdgeKind::finish_start, {lowered.bucket_ops.back().all_gather, 0, 0, 0, 1}});
  return lowered;
}

}  // namespace stretto
