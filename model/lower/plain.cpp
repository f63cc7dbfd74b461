#include <algorithm>
#include <string>

#include "model/lower/blocks.hpp"
#include "model/lower/builder.hpp"
#include "model/lower/lower.hpp"
#include "model/schedule/order.hpp"

namespace stretto {
namespace {

constexpr LaneId kCompute = 0, kDp = 1;

// Parameters and gradients as views of their buckets.
ParameterTensors add_parameters(Schedule& schedule, const std::vector<Parameter>& parameters, std::int64_t layers,
                                Lowered& lowered) {
  struct Family {
    const Parameter* shape;
    std::vector<TensorPlace> parameter, gradient;
  };
  std::map<std::string, Family> families;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const Bucket& bucket = lowered.buckets[b];
    BucketOps ops;
    ops.parameter =
        add_storage(schedule, "parameters" + suffix, schedule.compute_dtype, BufferKind::parameter, bucket.elements);
    ops.gradient =
        add_storage(schedule, "gradients" + suffix, schedule.compute_dtype, BufferKind::gradient, bucket.elements);
    lowered.bucket_ops.push_back(ops);
    for (const BucketEntry& entry : bucket.entries) {
      const Parameter& p = parameters[entry.parameter];
      Family& family = families[p.name];
      family.shape = &p;
      const std::size_t count = p.layer < 0 ? 1 : static_cast<std::size_t>(layers);
      family.parameter.resize(count);
      family.gradient.resize(count);
      family.parameter[p.layer < 0 ? 0 : p.layer] = {ops.parameter, entry.offset};
      family.gradient[p.layer < 0 ? 0 : p.layer] = {ops.gradient, entry.offset};
    }
  }
  ParameterTensors tensors;
  for (auto& [name, family] : families) {
    tensors.parameter[name] =
        add_placed_tensor(schedule, name, family.shape->rows, family.shape->cols, std::move(family.parameter));
    tensors.gradient[name] =
        add_placed_tensor(schedule, "grad." + name, family.shape->rows, family.shape->cols, std::move(family.gradient));
  }
  return tensors;
}

std::vector<AdamW::Range> decayed_ranges(const Bucket& bucket, const std::vector<Parameter>& parameters) {
  std::vector<AdamW::Range> ranges;
  for (const BucketEntry& entry : bucket.entries)
    if (parameters[entry.parameter].decayed)
      ranges.push_back({entry.offset, entry.offset + parameters[entry.parameter].elements()});
  return ranges;
}

// Forward and backward of every micro-batch. One micro-batch is in flight at a time without pipeline parallelism.
void append_micro_batches(const Schedule& schedule, const ModelBlocks& blocks, std::int64_t layers,
                          std::int64_t micro_batches, std::vector<Call>& order) {
  for (std::int64_t mb = 0; mb < micro_batches; ++mb) {
    order.push_back(call_block(schedule, blocks.embedding_forward, 0, mb));
    for (std::int64_t l = 0; l < layers; ++l) order.push_back(call_block(schedule, blocks.layer_forward, l, mb));
    order.push_back(call_block(schedule, blocks.head_forward, 0, mb));
    order.push_back(call_block(schedule, blocks.head_backward, 0, mb));
    for (std::int64_t l = layers; l-- > 0;) order.push_back(call_block(schedule, blocks.layer_backward, l, mb));
    order.push_back(call_block(schedule, blocks.embedding_backward, 0, mb));
  }
}

Edge finished(const Schedule& schedule, const Program& program, std::size_t call, int steps_ago = 0) {
  return {EdgeKind::finish_start, address_of(schedule, program, {call, program.order[call].count - 1}, steps_ago)};
}

}  // namespace

Lowered lower_plain(const Scenario& scenario) {
  const std::int64_t dp = scenario.parallel.data_parallel_size;
  const bool communicates = dp > 1;
  const std::vector<Parameter> model_parameters = parameters(scenario.model);

  Lowered lowered;
  Schedule& schedule = lowered.schedule;
  schedule.name = "plain";
  schedule.compute_dtype = scenario.training.precision == "fp64" ? Dtype::f64 : Dtype::f32;
  schedule.mesh = Mesh({{Coord::dp, dp}});
  schedule.placement.ranks_per_device =
      scenario.cluster.ranks_per_device > 0 ? std::min(scenario.cluster.ranks_per_device, dp) : dp;
  schedule.lanes = {{"compute", LaneKind::compute, 0}};
  if (communicates) {
    schedule.lanes.push_back({"dp", LaneKind::communication, -1});
    schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, dp}};
  }

  const std::int64_t bucket_size =
      scenario.overlap.bucket_size > 0 ? scenario.overlap.bucket_size : default_bucket_size(dp);
  lowered.buckets =
      make_buckets(model_parameters, scenario.overlap.overlap_grad_reduce && communicates ? bucket_size : 0, dp);
  const ParameterTensors tensors = add_parameters(schedule, model_parameters, scenario.model.num_layers, lowered);

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
  const ModelBlocks blocks = add_model_blocks(schedule, shape, tensors, loss, kCompute);

  Block zero{"zero", {}};
  add_operation(schedule, zero,
                {"metrics.zero", Fill{2, 0}, kCompute, Phase::setup, {write(whole(schedule, metrics))}});
  struct BucketTensors {
    TensorId parameter, gradient, low, m, v;
  };
  std::vector<BucketTensors> bucket_tensors;
  const bool casts = communicates && !scenario.overlap.grad_reduce_in_fp32;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t elements = lowered.buckets[b].elements, shard = elements / dp;
    BucketTensors t{};
    t.parameter =
        add_placed_tensor(schedule, "bucket.parameter" + suffix, 1, elements, {{lowered.bucket_ops[b].parameter, 0}});
    t.gradient =
        add_placed_tensor(schedule, "bucket.gradient" + suffix, 1, elements, {{lowered.bucket_ops[b].gradient, 0}});
    if (casts)
      t.low = add_tensor(schedule, "bucket.gradient_bf16" + suffix, Dtype::bf16, BufferKind::workspace, 1, elements);
    t.m = add_tensor(schedule, "adam.m" + suffix, schedule.compute_dtype, BufferKind::optimizer_state, 1, shard);
    t.v = add_tensor(schedule, "adam.v" + suffix, schedule.compute_dtype, BufferKind::optimizer_state, 1, shard);
    bucket_tensors.push_back(t);
    add_operation(
        schedule, zero,
        {"gradients.zero" + suffix, Fill{elements, 0}, kCompute, Phase::setup, {write(whole(schedule, t.gradient))}});
  }
  const BlockId zero_block = add_block(schedule, std::move(zero));

  schedule.programs = {{"rank", {}}};
  Program& program = schedule.programs.front();
  std::vector<Call>& order = program.order;
  order.push_back(call_block(schedule, zero_block));
  append_micro_batches(schedule, blocks, scenario.model.num_layers, shape.micro_batches, order);

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

  for (std::size_t b = 0; b < lowered.buckets.size() && communicates; ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t elements = lowered.buckets[b].elements, shard = elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    const TensorId reduced = casts ? bucket_tensors[b].low : bucket_tensors[b].gradient;
    if (casts)
      ops.cast_down = place({"dp.cast_to_bf16" + suffix,
                             Cast{elements},
                             kCompute,
                             Phase::grad_sync,
                             {read(whole(schedule, bucket_tensors[b].gradient)), write(whole(schedule, reduced))}});
    const Edge ready = finished(schedule, program, order.size() - 1);
    ops.reduce_scatter = place({"dp.reduce_scatter" + suffix,
                                Collective{CollectiveKind::reduce_scatter, 0, elements},
                                kDp,
                                Phase::grad_sync,
                                {read(whole(schedule, reduced)), write(shard_of(reduced, shard))}});
    // A reduce-scatter that follows another on the lane has the same compute before it: one edge says it.
    if (casts || b == 0) order.back().waits.push_back(ready);
  }
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const std::int64_t shard = lowered.buckets[b].elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    if (casts) {
      ops.cast_up =
          place({"dp.cast_to_f32" + suffix,
                 Cast{shard},
                 kCompute,
                 Phase::grad_sync,
                 {read(shard_of(bucket_tensors[b].low, shard)), write(shard_of(bucket_tensors[b].gradient, shard))}});
      wait_for(ops.reduce_scatter);
    }
    ops.sum_squares = place({"norm.sum_squares" + suffix,
                             SumSquares{shard},
                             kCompute,
                             Phase::optimizer,
                             {read(shard_of(bucket_tensors[b].gradient, shard)), accumulate(norm_squared)}});
    if (communicates && !casts) wait_for(ops.reduce_scatter);
  }
  OpId all_reduce = kNone;
  if (communicates) {
    const Edge ready = finished(schedule, program, order.size() - 1);
    all_reduce = place({"dp.all_reduce_metrics",
                        Collective{CollectiveKind::all_reduce, 0, 2},
                        kDp,
                        Phase::optimizer,
                        {accumulate(whole(schedule, metrics))}});
    order.back().waits.push_back(ready);
  }
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::int64_t shard = lowered.buckets[b].elements / dp;
    lowered.bucket_ops[b].adamw =
        place({"adamw.b" + std::to_string(b),
               AdamW{shard, decayed_ranges(lowered.buckets[b], model_parameters), dp},
               kCompute,
               Phase::optimizer,
               {read(shard_of(bucket_tensors[b].gradient, shard)), read(norm_squared), read(whole(schedule, hyper)),
                accumulate(shard_of(bucket_tensors[b].parameter, shard)),
                accumulate(whole(schedule, bucket_tensors[b].m)), accumulate(whole(schedule, bucket_tensors[b].v))}});
    if (b == 0 && communicates) wait_for(all_reduce);
  }
  for (std::size_t b = 0; b < lowered.buckets.size() && communicates; ++b) {
    const std::int64_t elements = lowered.buckets[b].elements, shard = elements / dp;
    BucketOps& ops = lowered.bucket_ops[b];
    ops.all_gather = place(
        {"dp.all_gather.b" + std::to_string(b),
         Collective{CollectiveKind::all_gather, 0, elements},
         kDp,
         Phase::param_sync,
         {read(shard_of(bucket_tensors[b].parameter, shard)), write(whole(schedule, bucket_tensors[b].parameter))}});
    wait_for(ops.adamw);
  }
  // The next step starts when the parameters are whole again.
  if (communicates)
    order.front().waits.push_back({EdgeKind::finish_start, {lowered.bucket_ops.back().all_gather, 0, 0, 0, 1}});
  return lowered;
}

}  // namespace stretto
