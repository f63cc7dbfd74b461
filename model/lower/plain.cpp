#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/lower/blocks.hpp"
#include "model/lower/builder.hpp"
#include "model/lower/lower.hpp"
#include "model/lower/optimizer.hpp"
#include "model/lower/parameters.hpp"
#include "model/lower/pipeline_order.hpp"
#include "model/lower/sharded.hpp"
#include "model/lower/stage_writer.hpp"

namespace stretto {
namespace {

constexpr LaneId kCompute = 0;

// Lanes and communicators; those of an axis of size 1 do not exist.
struct Lanes {
  LaneId dp = 0, instances = 0, gather = 0, tp = 0;
  std::uint32_t dp_communicator = 0, instances_communicator = 0, gather_communicator = 0, tp_communicator = 0;
  // Of a rank in them; dp stands for all that have the same parameters, inside an instance of the optimizer.
  Expr dp_place = 0, tp_place = 0;
  ContextShape cp;
};

// Axes as Parallel::order has them; by default tp varies fastest and pp slowest: tensor-parallel groups are neighbours.
Lanes add_mesh(Schedule& schedule, const Scenario& scenario) {
  const Parallel& p = scenario.parallel;
  const std::int64_t ranks = p.ranks();
  std::vector<MeshAxis> axes;
  for (const Coord axis : axes_in_order(p)) {
    const std::int64_t size = axis == Coord::tp            ? p.tensor_model_parallel_size
                              : axis == Coord::cp          ? p.context_parallel_size / p.cp_neighbours()
                              : axis == Coord::cp_exchange ? p.cp_neighbours()
                              : axis == Coord::dp          ? p.instance_data_parallel_size()
                              : axis == Coord::dp_instance ? p.num_distributed_optimizer_instances
                                                           : p.pipeline_model_parallel_size;
    if (size > 1 || axis == Coord::dp) axes.insert(axes.begin(), {axis, size});
  }
  schedule.mesh = Mesh(axes);
  schedule.placement.ranks_per_device =
      scenario.cluster.ranks_per_device > 0 ? std::min(scenario.cluster.ranks_per_device, ranks) : ranks;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  Lanes lanes;
  const auto add_lane = [&](const std::string& name) {
    schedule.lanes.push_back({name, LaneKind::communication, 0});
    return static_cast<LaneId>(schedule.lanes.size() - 1);
  };
  // Axes of one rank do not exist, but for dp.
  const auto add_communicator = [&](const std::string& name, std::vector<Coord> along, Expr& place) {
    std::erase_if(along, [&](Coord axis) { return axis != Coord::dp && schedule.mesh.size(axis) == 1; });
    std::int64_t size = 1;
    for (const Coord axis : along) size *= schedule.mesh.size(axis);
    schedule.communicators.push_back({name, along, CommEngine::nic, 1, size});
    place = place_in(schedule, schedule.communicators.back());
    return static_cast<std::uint32_t>(schedule.communicators.size() - 1);
  };
  if (p.replicas() > 1) {
    lanes.dp = add_lane("dp");
    lanes.dp_communicator = add_communicator("dp", {Coord::dp, Coord::cp, Coord::cp_exchange}, lanes.dp_place);
  }
  // Reductions across instances have a communicator and a stream of their own, as in Megatron-LM.
  if (p.num_distributed_optimizer_instances > 1) {
    lanes.instances = add_lane("dp.instances");
    Expr place;
    lanes.instances_communicator = add_communicator("dp.instances", {Coord::dp_instance}, place);
  }
  // Gathers beside reductions, which one communicator would put in a row (Megatron-FSDP's all-gather group).
  if (shards_units(scenario)) {
    lanes.gather = add_lane("dp.gather");
    Expr place;
    lanes.gather_communicator = add_communicator("dp.gather", {Coord::dp, Coord::cp, Coord::cp_exchange}, place);
  }
  if (p.tensor_model_parallel_size > 1) {
    lanes.tp = add_lane("tp");
    lanes.tp_communicator = add_communicator("tp", {Coord::tp}, lanes.tp_place);
  }
  ContextShape& cp = lanes.cp;
  cp.size = p.context_parallel_size;
  cp.kind_of_layer.assign(static_cast<std::size_t>(scenario.model.num_layers), 0);
  if (cp.size == 1) return lanes;
  const std::vector<CpCommType> types = p.cp_comm_types();
  cp.kinds.clear();
  for (const CpCommType type : types) {
    ContextKind& kind = cp.kinds.emplace_back();
    if (types.size() > 1) kind.suffix = std::string(".") + name_of(type);
    kind.exchange = p.cp_exchange_size(type);
    kind.ring = p.cp_ring_size(type);
    kind.gathers = type == CpCommType::all_gather;
    // Pairs of axes, or the whole group.
    const bool is_cut = kind.exchange > 1 && kind.ring > 1;
    const auto along = [&](Coord axis) {
      return is_cut ? std::vector{axis} : std::vector{Coord::cp, Coord::cp_exchange};
    };
    if (kind.exchange > 1)
      kind.exchange_communicator =
          add_communicator("cp.exchange" + kind.suffix, along(Coord::cp_exchange), kind.exchange_place);
    if (kind.ring > 1) kind.ring_communicator = add_communicator("cp" + kind.suffix, along(Coord::cp), kind.ring_place);
  }
  const ContextKind& any = cp.kinds.front();
  cp.place = any.exchange == 1 ? any.ring_place
             : any.ring == 1   ? any.exchange_place
                               : any.ring_place * Expr(any.exchange) + any.exchange_place;
  const auto has = [&](bool (*uses)(const ContextKind&)) {
    return std::any_of(cp.kinds.begin(), cp.kinds.end(), uses);
  };
  if (has([](const ContextKind& kind) { return kind.exchange > 1 || kind.gathers; })) cp.lane = add_lane("cp");
  if (has([](const ContextKind& kind) { return kind.has_ring(); })) {
    cp.send = add_lane("cp.send");
    cp.recv = add_lane("cp.recv");
  }
  for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer)
    cp.kind_of_layer[static_cast<std::size_t>(layer)] =
        static_cast<std::size_t>(std::find(types.begin(), types.end(), p.cp_comm_type_of(layer)) - types.begin());
  return lanes;
}

// The communicator of all ranks, which sums losses and norms; that of the only axis where there is one.
std::uint32_t add_communicator_of_all(Schedule& schedule) {
  std::vector<Coord> axes;
  std::string name;
  for (const MeshAxis& axis : schedule.mesh.axes()) {
    if (axis.size == 1) continue;
    axes.push_back(axis.coord);
    name += (name.empty() ? "" : "-") + std::string(name_of(axis.coord));
  }
  for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c)
    if (schedule.communicators[c].axes == axes) return c;
  schedule.communicators.push_back({name, axes, CommEngine::nic, 1, schedule.mesh.ranks()});
  return static_cast<std::uint32_t>(schedule.communicators.size() - 1);
}

// Micro-batches whose weight gradient of the head is put off.
std::int64_t deferred_of(const Scenario& scenario) {
  const Overlap& overlap = scenario.overlap;
  if (!overlap.defer_embedding_wgrad_compute || scenario.parallel.pipeline_model_parallel_size == 1 ||
      scenario.training.frozen_base || is_zero_bubble(scenario.parallel.pipeline_schedule))
    return 0;
  const std::int64_t all = scenario.num_microbatches();
  return overlap.wgrad_deferral_limit > 0 ? std::min(overlap.wgrad_deferral_limit, all) : all;
}

// Orders of all stages.
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
  shape.deferred = deferred_of(scenario);
  if (is_zero_bubble(parallel.pipeline_schedule)) shape.schedule = parallel.pipeline_schedule;
  return pipeline_orders(shape);
}

// Where the activations of each layer lie. Needs the chunks and their map.
void add_slots(BlockShape& shape, const std::vector<PipelineOrder>& orders) {
  for (std::int64_t layer = 0; layer <= shape.model.num_layers; ++layer) shape.slots.push_back({layer, {}});
  const auto merge = [](LayerSlots& into, const std::vector<std::int64_t>& used) {
    std::vector<std::int64_t> both;
    std::set_union(into.used.begin(), into.used.end(), used.begin(), used.end(), std::back_inserter(both));
    into.used = std::move(both);
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> homes;  // by stage and place in the chunk
  for (std::size_t c = 0; c < shape.chunks.size(); ++c) {
    const ModelChunk& chunk = shape.chunks[c];
    const auto piece = static_cast<std::int64_t>(c);
    const std::int64_t stage = shape.map.stage_of(piece);
    const std::vector<std::int64_t>& used =
        orders[static_cast<std::size_t>(stage)].slots[static_cast<std::size_t>(shape.map.chunk_of(piece))];
    const bool lends = !shape.weights_apart && !chunk.has_head;
    for (std::int64_t layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
      shape.layer_in_chunk.push_back(layer - chunk.first_layer);
      LayerSlots& of_layer = shape.slots[static_cast<std::size_t>(layer)];
      merge(of_layer, used);
      if (lends) of_layer.home = homes.try_emplace({stage, shape.layer_in_chunk.back()}, layer).first->second;
    }
    // A chunk without layers has its input alone.
    if (chunk.layers() == 0 || chunk.has_head) merge(shape.slots[static_cast<std::size_t>(chunk.end_layer)], used);
  }
  for (LayerSlots& of_layer : shape.slots)
    if (of_layer.used.empty()) of_layer.used = {0};
}

BlockShape shape_of(const Scenario& scenario, const Lanes& lanes, const std::vector<PipelineOrder>& orders) {
  const Parallel& parallel = scenario.parallel;
  BlockShape shape;
  shape.model = scenario.model;
  shape.micro_batch_size = scenario.training.micro_batch_size;
  shape.micro_batches = scenario.num_microbatches();
  shape.cp = lanes.cp;
  shape.loss_scale = 1.0 / (double(parallel.replicas()) * double(shape.micro_batches) * double(shape.tokens()));
  shape.recompute = scenario.training.recompute;
  shape.attention_backend = scenario.training.attention_backend;
  shape.frozen_base = scenario.training.frozen_base;
  shape.gelu_fusion = scenario.training.gelu_fusion && !scenario.model.swiglu;
  shape.bias_gradient_fusion = scenario.training.bias_gradient_fusion && scenario.model.add_bias_linear;
  shape.gelu_bias_gradient_fusion = scenario.training.gelu_bias_gradient_fusion && shape.gelu_fusion &&
                                    scenario.model.add_bias_linear && !shape.frozen_base &&
                                    !scenario.overlap.tp_comm_overlap;
  shape.tp = parallel.tensor_model_parallel_size;
  shape.residual_fusion = scenario.training.residual_fusion && scenario.model.hidden_dropout == 0 && shape.tp == 1;
  shape.norm_gradient_fusion = scenario.training.norm_gradient_fusion;
  shape.sequence_parallel = parallel.sequence_parallel && shape.tp > 1;
  shape.scatters_messages = parallel.scatter_gather_tensors_in_pipeline && shape.tp > 1 && !parallel.sequence_parallel;
  shape.tp_lane = lanes.tp;
  shape.tp_communicator = lanes.tp_communicator;
  shape.tp_place = lanes.tp_place;
  shape.map = stage_map(parallel);
  shape.chunks = model_chunks(scenario.model, parallel);
  shape.deferred = deferred_of(scenario);
  shape.weights_apart = is_zero_bubble(parallel.pipeline_schedule);
  shape.head_weight = ties_across_stages(scenario) ? kTiedHeadWeight : scenario.model.head_weight();
  add_slots(shape, orders);
  for (const PipelineOrder& order : orders) {
    shape.output_buffers = std::max(shape.output_buffers, order.output_buffers);
    shape.gradient_buffers = std::max(shape.gradient_buffers, order.gradient_buffers);
  }
  return shape;
}

// The sum of a tied embedding's gradient shards: one operation of both stages. Places of `gradient` are those of the
// first and of the last stage; the shard begins at `begin`.
void add_sum_of_tied(Schedule& schedule, TensorId gradient, std::int64_t shard, const Expr& begin, const StageMap& map,
                     LaneId lane, Optimizer& optimizer) {
  const std::int64_t first = map.first_stage(), last = map.last_stage();
  schedule.communicators.push_back({"embedding", {Coord::pp}, CommEngine::nic, 1, 2, {first, last}});
  const auto communicator = static_cast<std::uint32_t>(schedule.communicators.size() - 1);
  const View view{gradient, place_in(schedule, schedule.communicators.back()), 0, begin, 1, shard, shard};
  optimizer.sum_tied = add_single(schedule, {"embedding.all_reduce_wgrad",
                                             Collective{CollectiveKind::all_reduce, communicator, shard},
                                             lane,
                                             Phase::grad_sync,
                                             {accumulate(view)}});
}

// The buckets that hold the copies of a tied embedding.
TensorId tied_gradient_buckets(Schedule& schedule, const Lowered& lowered) {
  std::vector<TensorPlace> places;
  std::int64_t elements = 0;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    if (!lowered.buckets[b].tied) continue;
    places.push_back({lowered.bucket_ops[b].gradient, 0});
    elements = lowered.buckets[b].elements;
  }
  return add_placed_tensor(schedule, "bucket.gradient.tied", 1, elements, std::move(places));
}

}  // namespace

Lowered lower_plain(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  const std::int64_t dp = parallel.data_parallel_size, stages = parallel.pipeline_model_parallel_size;
  Lowered lowered;
  Schedule& schedule = lowered.schedule;
  schedule.name = "plain";
  schedule.compute_dtype = scenario.training.precision == "fp64"   ? Dtype::f64
                           : scenario.training.precision == "bf16" ? Dtype::bf16
                                                                   : Dtype::f32;
  const Lanes lanes = add_mesh(schedule, scenario);
  const bool is_sharded = shards_units(scenario);
  ShardedParameters sharded;
  ModelParameters in_buckets;
  if (is_sharded)
    sharded = add_sharded_parameters(schedule, scenario, lanes.dp_place);
  else
    in_buckets = add_parameters(schedule, scenario, lanes.dp_place, lowered);
  const ModelParameters& parameters = is_sharded ? sharded.model : in_buckets;

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
  const BlockShape shape = shape_of(scenario, lanes, orders);
  schedule.step_data.parts = shape.parts();
  const ModelBlocks blocks = add_model_blocks(schedule, shape, parameters.tensors, loss, kCompute);
  lowered.forward_blocks = {blocks.embedding_forward, blocks.head_forward};
  for (const LayerBlocks& layer : blocks.layers) {
    lowered.layer_blocks.push_back(layer.forward);
    // Kinds may have one in common (selective_op).
    const bool is_known = std::count(lowered.layer_blocks.begin(), lowered.layer_blocks.end(), layer.recompute) > 0;
    if (shape.recompute.repeats_layers() && !is_known) lowered.layer_blocks.push_back(layer.recompute);
    if (shape.weights_apart) lowered.layer_blocks.push_back(layer.wgrad);
    lowered.layer_blocks.push_back(layer.backward);
    lowered.forward_blocks.push_back(layer.forward);
    lowered.backward_blocks.push_back(layer.backward);
  }
  lowered.end_blocks = {blocks.embedding_forward, blocks.head_forward, blocks.head_backward};
  if (!shape.frozen_base) lowered.end_blocks.push_back(blocks.embedding_backward);
  if (shape.puts_off_head()) lowered.end_blocks.push_back(blocks.head_wgrad);
  lowered.compute = kCompute;
  lowered.tp_lane = lanes.tp;
  lowered.cp_send = lanes.cp.send;
  lowered.cp_recv = lanes.cp.recv;
  for (std::size_t k = 0; k < shape.cp.kinds.size() && shape.cp.size > 1; ++k)
    if (parallel.cp_comm_types()[k] == CpCommType::a2a)
      lowered.cp_exchanged = {"attention" + shape.cp.kinds[k].suffix, shape.cp.kinds[k].exchange_communicator};
  lowered.tp_communicator = lanes.tp_communicator;
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
  if (!shape.frozen_base)
    optimizer.tensors = add_bucket_tensors(
        schedule, lowered, parallel.optimizer_shards(),
        {parallel.replicas() > 1 && !scenario.overlap.grad_reduce_in_fp32, sums_in_fp32(scenario), parameters.in_fp8});
  optimizer.norm_squared = {metrics, 0, 0, 1, 1, 1, 1};
  optimizer.hyper = whole(schedule, hyper);
  optimizer.compute = kCompute;
  optimizer.dp = lanes.dp;
  optimizer.tp = lanes.tp;
  optimizer.dp_communicator = lanes.dp_communicator;
  optimizer.instances = lanes.instances;
  optimizer.instances_communicator = lanes.instances_communicator;
  optimizer.tp_communicator = lanes.tp_communicator;
  optimizer.shard = parallel.shards_optimizer() ? lanes.dp_place : Expr(0);
  optimizer.sums_metrics = parallel.ranks() > 1;
  optimizer.is_tied = ties_across_stages(scenario) && !shape.frozen_base;
  // Collectives of all ranks, or of two stages, use the first communication lane.
  const LaneId common = 1;
  if (optimizer.sums_metrics) {
    const std::uint32_t all = add_communicator_of_all(schedule);
    optimizer.sum_metrics = add_single(schedule, {schedule.lanes[common].name + ".all_reduce_metrics",
                                                  Collective{CollectiveKind::all_reduce, all, 2},
                                                  common,
                                                  Phase::optimizer,
                                                  {accumulate(whole(schedule, metrics))}});
  }
  if (optimizer.is_tied) {
    const TensorId tied =
        is_sharded ? tied_gradient_shards(schedule, sharded) : tied_gradient_buckets(schedule, lowered);
    const std::int64_t shard = schedule.tensors[tied].cols / (is_sharded ? 1 : parallel.optimizer_shards());
    add_sum_of_tied(schedule, tied, shard, is_sharded ? Expr(0) : optimizer.shard * Expr(shard), shape.map, common,
                    optimizer);
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
                      {"gradients.zero" + gradients.suffix() + (stages > 1 ? ".stage" + std::to_string(stage) : ""),
                       Fill{schedule.tensors[gradients.all].cols, 0},
                       kCompute,
                       Phase::setup,
                       {write(whole(schedule, gradients.all))}});
    const BlockId zero_block = add_block(schedule, std::move(zero));
    schedule.programs.push_back({stages > 1 ? "stage " + std::to_string(stage) : "rank", {}});
    std::vector<Call>& calls = schedule.programs.back().order;
    calls.push_back(call_block(schedule, zero_block));
    calls.back().sequence = kSequence;
    append_pipeline(schedule, blocks, messages, shape, stage, orders[role], calls);
    if (!is_sharded) append_optimizer(lowered, optimizer, parameters, scenario, role);
  }
  if (is_sharded)
    append_sharded(lowered, sharded,
                   {kCompute, lanes.gather, lanes.dp, lanes.instances, lanes.tp, lanes.gather_communicator,
                    lanes.dp_communicator, lanes.instances_communicator, lanes.tp_communicator},
                   optimizer, blocks, scenario);
  return lowered;
}

}  // namespace stretto
