#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/deferral.hpp"
#include "model/expert_slots.hpp"
#include "model/lower/blocks.hpp"
#include "model/lower/builder.hpp"
#include "model/lower/delayed_scaling.hpp"
#include "model/lower/lower.hpp"
#include "model/lower/optimizer.hpp"
#include "model/lower/parameters.hpp"
#include "model/lower/router_sums.hpp"
#include "model/lower/sharded.hpp"
#include "model/lower/stage_writer.hpp"
#include "model/order/pipeline_order.hpp"

namespace stretto {
namespace {

constexpr LaneId kCompute = 0;

// Returns the orders of all stages.
std::vector<PipelineOrder> order_stages(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  PipelineShape shape;
  shape.stages = parallel.pipeline_model_parallel_size;
  shape.chunks = parallel.virtual_pipeline_model_parallel_size;
  shape.micro_batches = scenario.num_microbatches();
  shape.group =
      parallel.microbatch_group_size_per_vp_stage > 0 ? parallel.microbatch_group_size_per_vp_stage : shape.stages;
  shape.overlap = scenario.overlap.overlap_p2p_comm;
  shape.overlap_warmup_flush = scenario.overlap.overlap_p2p_comm_warmup_flush;
  shape.deferred = deferred_head_gradients(scenario);
  shape.pairs_passes = overlaps_experts(scenario);
  if (is_zero_bubble(parallel.pipeline_schedule)) shape.schedule = parallel.pipeline_schedule;
  return pipeline_orders(shape);
}

// Sets the slots of the activations of each layer. Needs the chunks and their map.
void add_slots(BlockShape& shape, const std::vector<PipelineOrder>& orders) {
  for (std::int64_t layer = 0; layer <= shape.model.num_layers; ++layer) shape.slots.push_back({layer, {}});
  const auto merge = [](LayerSlots& into, const std::vector<std::int64_t>& used) {
    std::vector<std::int64_t> both;
    std::set_union(into.used.begin(), into.used.end(), used.begin(), used.end(), std::back_inserter(both));
    into.used = std::move(both);
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> homes;  // (stage, place in the chunk) → home
  for (std::size_t c = 0; c < shape.chunks.size(); ++c) {
    const ModelChunk& chunk = shape.chunks[c];
    const auto piece = static_cast<std::int64_t>(c);
    const std::int64_t stage = shape.map.stage_of(piece);
    const std::vector<std::int64_t>& used =
        orders[static_cast<std::size_t>(stage)].slots[static_cast<std::size_t>(shape.map.chunk_of(piece))];
    const bool lends = !shape.weights_in_units && !chunk.has_head;
    for (std::int64_t layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
      shape.layer_in_chunk.push_back(layer - chunk.first_layer);
      LayerSlots& of_layer = shape.slots[static_cast<std::size_t>(layer)];
      merge(of_layer, used);
      if (lends) of_layer.home = homes.try_emplace({stage, shape.layer_in_chunk.back()}, layer).first->second;
    }
    // A chunk without layers has only its input.
    if (chunk.layers() == 0 || chunk.has_head) merge(shape.slots[static_cast<std::size_t>(chunk.end_layer)], used);
  }
  for (LayerSlots& of_layer : shape.slots)
    if (of_layer.used.empty()) of_layer.used = {0};
}

// Adds the chunks, and what the orders of the stages decide.
void add_stages(BlockShape& shape, const Scenario& scenario, const std::vector<PipelineOrder>& orders) {
  shape.map = stage_map(scenario.parallel);
  shape.chunks = model_chunks(scenario.model, scenario.parallel);
  add_slots(shape, orders);
  for (const PipelineOrder& order : orders) {
    shape.output_buffers = std::max(shape.output_buffers, order.output_buffers);
    shape.gradient_buffers = std::max(shape.gradient_buffers, order.gradient_buffers);
  }
}

// Adds the sum of a tied embedding's gradient shards, one operation of both stages. `gradient` has a place for the
// first and one for the last stage; the shard begins at `begin`.
BlockId add_sum_of_tied(Schedule& schedule, TensorId gradient, std::int64_t shard, const Expr& begin,
                        const Group& tied) {
  return add_single(schedule, collective_operation("embedding.all_reduce_wgrad", tied, CollectiveKind::all_reduce,
                                                   shard, Phase::grad_sync,
                                                   {accumulate({gradient, tied.place, 0, begin, 1, shard, shard})}));
}

// Returns the buckets that hold the copies of a tied embedding.
TensorId tied_gradient_buckets(Schedule& schedule, const Lowered& lowered) {
  std::vector<TensorPlace> places;
  std::int64_t elements = 0;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    if (!lowered.classes[lowered.buckets[b].parameter_class].is_tied) continue;
    places.push_back({lowered.bucket_ops[b].gradient, 0});
    elements = lowered.buckets[b].elements;
  }
  return add_placed_tensor(schedule, "bucket.gradient.tied", 1, elements, std::move(places));
}

}  // namespace

Lowered lower_plain(const Scenario& scenario, ClassesOf classes_of) {
  const Parallel& parallel = scenario.parallel;
  const std::int64_t dp = parallel.data_parallel_size, stages = parallel.pipeline_model_parallel_size;
  Lowered lowered;
  Schedule& schedule = lowered.schedule;
  schedule.name = "plain";
  schedule.compute_dtype = scenario.training.compute_dtype();
  const Groups groups = add_groups(schedule, scenario);
  lowered.classes = classes_of(schedule, scenario, groups);
  const bool is_sharded = shards_units(scenario);
  ShardedParameters sharded;
  ModelParameters in_buckets;
  if (is_sharded)
    sharded = add_sharded_parameters(schedule, scenario, lowered.classes);
  else
    in_buckets = add_parameters(schedule, scenario, lowered);
  ModelParameters& parameters = is_sharded ? sharded.model : in_buckets;
  const RouterSums router_sums = add_router_sums(schedule, scenario, parameters.tensors);

  // metrics = {loss, squared gradient norm}: summed over ranks in one all-reduce.
  const TensorId metrics = add_tensor(schedule, "metrics", Dtype::f64, BufferKind::scalar, 1, 2);
  const View loss{metrics, 0, 0, 0, 1, 1, 1};
  const TensorId hyper = add_tensor(schedule, "hyper", Dtype::f64, BufferKind::input, 1, 8);

  schedule.step_data.hyper = hyper;
  schedule.step_data.metrics = metrics;
  const Expr replica = Expr(Coord::dp_instance) * Expr(parallel.instance_data_parallel_size()) + Expr(Coord::dp);
  schedule.step_data.first_sample =
      (Expr(Coord::micro_batch) * Expr(dp) + (parallel.num_distributed_optimizer_instances > 1 ? replica : Coord::dp)) *
      Expr(scenario.training.micro_batch_size);

  const std::vector<PipelineOrder> orders = order_stages(scenario);
  BlockShape shape = shape_of(scenario, groups);
  add_stages(shape, scenario, orders);
  schedule.step_data.parts = shape.parts();
  DelayedScaling delayed;
  const bool is_delayed = shape.low.is_delayed();
  if (is_delayed) delayed = add_delayed_scaling(schedule, shape);
  const ModelBlocks blocks =
      add_model_blocks(schedule, shape, parameters.tensors, loss, kCompute, is_delayed ? &delayed : nullptr);
  lowered.forward_blocks = {blocks.embedding_forward, blocks.head_forward};
  for (const LayerBlocks& layer : blocks.layers) {
    lowered.layer_blocks.push_back(layer.forward);
    // Kinds may share a recompute block (selective_op).
    const bool is_known = std::count(lowered.layer_blocks.begin(), lowered.layer_blocks.end(), layer.recompute) > 0;
    if (shape.recompute.repeats_layers() && !is_known) lowered.layer_blocks.push_back(layer.recompute);
    if (shape.weights_apart) lowered.layer_blocks.push_back(layer.wgrad);
    lowered.layer_blocks.push_back(layer.backward);
    lowered.forward_blocks.push_back(layer.forward);
    if (layer.quantise_weights) lowered.forward_blocks.push_back(*layer.quantise_weights);
    lowered.backward_blocks.push_back(layer.backward);
  }
  lowered.end_blocks = {blocks.embedding_forward, blocks.head_forward, blocks.head_backward};
  if (!shape.frozen_base) lowered.end_blocks.push_back(blocks.embedding_backward);
  if (shape.puts_off_head()) lowered.end_blocks.push_back(blocks.head_wgrad);
  lowered.compute = kCompute;
  lowered.tp = groups.tp;
  lowered.ep = groups.ep;
  lowered.cp_send = groups.cp.send;
  lowered.cp_recv = groups.cp.recv;
  for (std::size_t k = 0; k < shape.cp.kinds.size() && shape.cp.size > 1; ++k)
    if (parallel.cp_comm_types()[k] == CpCommType::a2a)
      lowered.cp_exchanged = {"attention" + shape.cp.kinds[k].suffix, shape.cp.kinds[k].exchange};
  PipelineBlocks messages;
  if (stages > 1)
    messages = add_pipeline_blocks(schedule, blocks, shape,
                                   scenario.overlap.batch_p2p_comm && !scenario.overlap.overlap_p2p_comm,
                                   scenario.overlap.overlap_p2p_comm);

  if (messages.overlap)
    for (const MessageBlocks& way : messages.ways)
      for (const BlockId block : {way.send_forward, way.recv_forward, way.send_backward, way.recv_backward})
        lowered.free.push_back(schedule.blocks[block].ops.front());

  Optimizer optimizer;
  if (!shape.frozen_base) optimizer.tensors = add_bucket_tensors(schedule, scenario, lowered, parameters);
  optimizer.norm_squared = {metrics, 0, 0, 1, 1, 1, 1};
  optimizer.hyper = whole(schedule, hyper);
  optimizer.compute = kCompute;
  if (parallel.ranks() > 1)
    optimizer.sum_metrics =
        add_single(schedule, collective_operation(schedule.lanes[kCommonLane].name + ".all_reduce_metrics",
                                                  add_group_of_all(schedule, kCommonLane), CollectiveKind::all_reduce,
                                                  2, Phase::optimizer, {accumulate(whole(schedule, metrics))}));
  if (ties_across_stages(scenario) && !shape.frozen_base) {
    const auto of =
        std::find_if(lowered.classes.begin(), lowered.classes.end(), [](const ParameterClass& c) { return c.is_tied; });
    of->tied =
        add_subset(schedule, "embedding", Coord::pp, {shape.map.first_stage(), shape.map.last_stage()}, kCommonLane);
    const TensorId tied =
        is_sharded ? tied_gradient_shards(schedule, sharded) : tied_gradient_buckets(schedule, lowered);
    const std::int64_t shard = schedule.tensors[tied].cols / (is_sharded ? 1 : of->shards);
    optimizer.sum_tied =
        add_sum_of_tied(schedule, tied, shard, is_sharded ? Expr(0) : of->shard() * Expr(shard), of->tied);
  }

  const Operation zero_metrics{"metrics.zero", Fill{2, 0}, kCompute, Phase::setup, {write(whole(schedule, metrics))}};
  std::optional<OpId> metrics_zero;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto role = static_cast<std::size_t>(stage);
    Block zero{stages > 1 ? "zero.stage" + std::to_string(stage) : "zero", {}, {}};
    if (metrics_zero)
      zero.ops.push_back(*metrics_zero);
    else
      metrics_zero = add_operation(schedule, zero, zero_metrics);
    for (std::size_t b = 0; b < lowered.buckets.size(); ++b)
      if (lowered.buckets[b].role == role && !shape.frozen_base)
        add_operation(schedule, zero,
                      {"gradients.zero.b" + std::to_string(b),
                       Fill{lowered.buckets[b].elements, 0},
                       kCompute,
                       Phase::setup,
                       {write(whole(schedule, optimizer.tensors[b].gradient))}});
    for (const GradientShards& gradients : sharded.gradients)
      if (gradients.role == role && !keeps_whole(parallel))
        add_operation(schedule, zero,
                      {"gradients.zero" + lowered.classes[gradients.parameter_class].suffix +
                           (stages > 1 ? ".stage" + std::to_string(stage) : ""),
                       Fill{schedule.tensors[gradients.all].cols, 0},
                       kCompute,
                       Phase::setup,
                       {write(whole(schedule, gradients.all))}});
    zero_router_sums(schedule, router_sums, role, kCompute, zero);
    if (is_delayed) zero_amaxes(schedule, shape, delayed, stage, kCompute, zero);
    const BlockId zero_block = add_block(schedule, std::move(zero));
    schedule.programs.push_back({stages > 1 ? "stage " + std::to_string(stage) : "rank", {}});
    std::vector<Call>& calls = schedule.programs.back().order;
    calls.push_back(call_block(schedule, zero_block));
    calls.back().sequence = kSequence;
    append_pipeline(schedule, blocks, messages, shape, stage, orders[role], calls);
    if (!shape.frozen_base) append_bias_update(schedule, router_sums, role, kCompute);
    if (!is_sharded) append_optimizer(lowered, optimizer, parameters, scenario, role);
  }
  if (is_sharded) append_sharded(lowered, sharded, optimizer, blocks, scenario);
  return lowered;
}

}  // namespace stretto
