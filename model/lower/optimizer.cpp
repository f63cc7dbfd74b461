#include "model/lower/optimizer.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

class OptimizerWriter {
 public:
  OptimizerWriter(Lowered& lowered, const Optimizer& optimizer, const ModelParameters& parameters,
                  const Scenario& scenario, std::size_t role)
      : lowered_(lowered),
        schedule_(lowered.schedule),
        o_(optimizer),
        parameters_(parameters),
        order_(lowered.schedule.programs[role].order) {
    if (scenario.training.frozen_base) return;  // there are no buckets to update
    for (std::size_t b = 0; b < lowered.buckets.size(); ++b)
      if (lowered.buckets[b].role == role) buckets_.push_back(b);
    updated_ = buckets_;
    if (updates_first_chunk_first(scenario))
      std::stable_partition(updated_.begin(), updated_.end(), [&](std::size_t b) { return ops(b).first_chunk; });
  }

  void run() {
    if (buckets_.empty()) {
      // The next step zeroes the metrics, so it waits for their sum.
      if (const std::optional<OpAddress> summed = sum_metrics())
        order_.front().waits.push_back({EdgeKind::finish_start, {summed->op, 0, 0, 0, 1}});
      return;
    }
    sum_norm_gradients();
    reduce();
    sum_squares_of_all();
    const std::optional<OpAddress> summed = sum_metrics();
    step(summed);
    all_gather();
    gather_fp8();
  }

 private:
  OpId place(Operation operation) {
    const BlockId block = add_single(schedule_, std::move(operation));
    order_.push_back(call_block(schedule_, block));
    return schedule_.blocks[block].ops.front();
  }
  void wait_for(OpId op) { order_.back().waits.push_back({EdgeKind::finish_start, {op, 0, 0, 0, 0}}); }
  const ParameterClass& class_of(std::size_t b) const { return lowered_.classes[lowered_.buckets[b].parameter_class]; }
  std::int64_t shard(std::size_t b) const { return lowered_.buckets[b].elements / class_of(b).shards; }
  View shard_of(std::size_t b, TensorId tensor) const {
    return View{tensor, 0, 0, class_of(b).shard() * Expr(shard(b)), 1, shard(b), shard(b)};
  }
  View all_of(TensorId tensor) const { return whole(schedule_, tensor); }
  static std::string suffix(std::size_t b) { return ".b" + std::to_string(b); }
  const BucketTensors& tensors(std::size_t b) const { return o_.tensors[b]; }
  BucketOps& ops(std::size_t b) { return lowered_.bucket_ops[b]; }
  // Returns the latest operation on the compute lane. It is known already for calls before `computed_end_`.
  Edge computed() {
    for (std::size_t c = order_.size(); c-- > computed_end_;)
      for (std::uint32_t i = order_[c].first + order_[c].count; i-- > order_[c].first;) {
        const OpId op = schedule_.blocks[order_[c].block].ops[i];
        if (schedule_.operations[op].lane != o_.compute) continue;
        computed_end_ = order_.size();
        computed_ = {EdgeKind::finish_start, {op, order_[c].layer, order_[c].micro_batch, order_[c].chunk, 0}};
        return computed_;
      }
    computed_end_ = order_.size();
    return computed_;
  }

  void sum_norm_gradients() {
    for (const std::size_t b : buckets_) {
      if (!class_of(b).sums_over_tp) continue;
      const Edge ready = computed();
      ops(b).tp_all_reduce =
          place(sum_over_tp("tp.all_reduce_norms" + suffix(b), class_of(b), all_of(tensors(b).gradient)));
      order_.back().waits.push_back(ready);
      summed_norms_ = Edge{EdgeKind::finish_start, {ops(b).tp_all_reduce, 0, 0, 0, 0}};
    }
  }

  // Replaces a reduce-scatter: an all-to-all, and an f32 sum of the parts that it has brought.
  Operation exchange(std::size_t b) const {
    return collective_operation("dp.all_to_all" + suffix(b), class_of(b).data, CollectiveKind::all_to_all,
                                lowered_.buckets[b].elements, Phase::grad_sync,
                                {read(all_of(*tensors(b).low)), write(all_of(*tensors(b).parts))});
  }

  void reduce() {
    std::set<LaneId> begun;
    std::map<LaneId, OpId> across;  // [lane] operation of the previous bucket, across instances
    for (const std::size_t b : buckets_) {
      const BucketTensors& t = tensors(b);
      const ParameterClass& of = class_of(b);
      if (!of.reduces()) continue;
      if (t.low) {
        ops(b).cast_down = place(cast_gradient("dp.cast_to_bf16" + suffix(b), o_, all_of(t.gradient), all_of(*t.low)));
        if (ops(b).tp_all_reduce != kNone) wait_for(ops(b).tp_all_reduce);
      }
      const Edge ready = computed();
      const TensorId reduced = t.low.value_or(t.gradient);
      ops(b).reduction =
          place(t.parts ? exchange(b) : reduce_gradient(suffix(b), of, all_of(reduced), shard_of(b, reduced)));
      // A reduction that follows another one on its lane has the same predecessors, so one edge is enough.
      const bool is_first = begun.insert(of.data.lane).second;
      if (!t.low && is_first && summed_norms_)
        order_.back().waits.push_back(*summed_norms_);
      else if (t.low || is_first)
        order_.back().waits.push_back(ready);
      if (t.parts) {
        ops(b).local_sum = place({"dp.local_sum" + suffix(b),
                                  LocalReduce{of.shards, shard(b)},
                                  o_.compute,
                                  Phase::grad_sync,
                                  {read(all_of(*t.parts)), write(shard_of(b, t.gradient))}});
        wait_for(ops(b).reduction);
      }
      if (!of.instances.exists()) continue;
      if (const auto before = across.find(of.instances.lane); before != across.end()) wait_for(before->second);
      ops(b).instances_all_reduce =
          place(reduce_instances("dp.all_reduce_instances" + suffix(b), of, shard_of(b, reduced)));
      wait_for(ops(b).reduction);
      across[of.instances.lane] = ops(b).instances_all_reduce;
    }
  }

  void sum_squares_of_all() {
    for (const std::size_t b : buckets_) {
      const BucketTensors& t = tensors(b);
      const ParameterClass& of = class_of(b);
      const View gradient = shard_of(b, t.gradient);
      const bool waits_for_reduction = of.reduces() && !t.low;
      if (t.low && !t.parts) {
        ops(b).cast_up = place(cast_gradient("dp.cast_to_f32" + suffix(b), o_, shard_of(b, *t.low), gradient));
        wait_for(ops(b).last_reduction());
      }
      if (of.tied.exists()) {
        const Edge ready = computed();
        order_.push_back(call_block(schedule_, o_.sum_tied));
        ops(b).tied_all_reduce = schedule_.blocks[order_.back().block].ops.front();
        order_.back().waits.push_back(ready);
        if (waits_for_reduction) wait_for(ops(b).last_reduction());
      }
      ops(b).sum_squares = place(sum_squares(suffix(b), o_, of, gradient));
      if (of.tied.exists())
        wait_for(ops(b).tied_all_reduce);
      else if (waits_for_reduction)
        wait_for(ops(b).last_reduction());
      if (!of.reduces() && ops(b).tp_all_reduce != kNone) wait_for(ops(b).tp_all_reduce);
    }
  }

  std::optional<OpAddress> sum_metrics() {
    if (!o_.sum_metrics) return std::nullopt;
    const Edge ready = computed();
    order_.push_back(call_block(schedule_, *o_.sum_metrics));
    order_.back().waits.push_back(ready);
    return OpAddress{schedule_.blocks[*o_.sum_metrics].ops.front(), 0, 0, 0, 0};
  }

  void step(const std::optional<OpAddress>& summed) {
    bool is_first = true;
    for (const std::size_t b : updated_) {
      const BucketTensors& t = tensors(b);
      OwnShard own{shard_of(b, t.gradient),
                   shard_of(b, t.parameter),
                   all_of(t.m),
                   all_of(t.v),
                   {},
                   decayed_ranges(lowered_.buckets[b], parameters_.parts)};
      if (t.master) own.master = all_of(*t.master);
      own.remainders = t.master && schedule_.dtype_of(*own.master) == Dtype::i16;
      ops(b).adamw = place(update_shard(suffix(b), o_, class_of(b), std::move(own)));
      if (is_first && summed) order_.back().waits.push_back({EdgeKind::finish_start, *summed});
      is_first = false;
    }
  }

  void all_gather() {
    std::map<LaneId, OpId> last;
    for (const std::size_t b : buckets_) {
      const BucketTensors& t = tensors(b);
      if (t.fp8 || class_of(b).shards == 1) continue;
      const Group& group = class_of(b).data;
      ops(b).all_gather =
          place(gather_parameters("dp.all_gather" + suffix(b), group, shard_of(b, t.parameter), all_of(t.parameter)));
      wait_for(ops(b).adamw);
      last[group.lane] = ops(b).all_gather;
    }
    // The next step starts when the parameters are whole again.
    for (const auto& [lane, op] : last) order_.front().waits.push_back({EdgeKind::finish_start, {op, 0, 0, 0, 1}});
  }

  // Adds, after the step's first call and in sequence, the cast, gather and cast back of parameters. The shard that
  // AdamW updated in the previous step is rounded and gathered, and replaces the parameters, the rank's own shard
  // included, so that all ranks compute with equal parameters.
  void gather_fp8() {
    std::vector<Call> calls;
    const auto add = [&](Operation operation) {
      const BlockId block = add_single(schedule_, std::move(operation));
      calls.push_back(call_block(schedule_, block));
      calls.back().sequence = order_.front().sequence;
      return schedule_.blocks[block].ops.front();
    };
    for (const std::size_t b : buckets_) {
      if (!tensors(b).fp8) continue;
      const BucketTensors& t = tensors(b);
      const std::int64_t shards = class_of(b).shards;
      ops(b).to_fp8 = add({"dp.cast_to_fp8" + suffix(b),
                           ScaledCast{Pass::forward, 1, shard(b)},
                           o_.compute,
                           Phase::param_sync,
                           {read(shard_of(b, t.parameter)), write(all_of(*t.fp8_shard))}});
      ops(b).all_gather =
          add(gather_parameters("dp.all_gather" + suffix(b), class_of(b).data, all_of(*t.fp8_shard), all_of(*t.fp8)));
      ops(b).from_fp8 = add({"dp.cast_from_fp8" + suffix(b),
                             ScaledCast{Pass::backward, shards, shard(b)},
                             o_.compute,
                             Phase::param_sync,
                             {read(all_of(*t.fp8)), write(all_of(t.parameter))}});
    }
    order_.insert(order_.begin() + 1, calls.begin(), calls.end());
  }

  Lowered& lowered_;
  Schedule& schedule_;
  const Optimizer& o_;
  const ModelParameters& parameters_;
  std::vector<Call>& order_;
  std::vector<std::size_t> buckets_;  // buckets of the role
  std::vector<std::size_t> updated_;  // the role's buckets in the order of their updates
  std::optional<Edge> summed_norms_;  // the last sum of squares
  std::size_t computed_end_ = 0;
  Edge computed_;
};

// Returns whether there are buckets to reduce, which needs trained parameters.
bool has_sharded_buckets(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  return parallel.shards_optimizer() && !parallel.shards_gradients() && parallel.shards() > 1 &&
         !scenario.training.frozen_base;
}

}  // namespace

bool sums_in_fp32(const Scenario& scenario, const ParameterClass& of) {
  return scenario.overlap.reduce_scatter_with_fp32_accumulation && !scenario.overlap.grad_reduce_in_fp32 &&
         has_sharded_buckets(scenario) && of.shards > 1;
}

bool gathers_fp8(const Scenario& scenario) {
  const LowPrecisionRules rules = rules_of(scenario.training.low_precision, scenario.compute_capability);
  return scenario.overlap.fp8_param_gather && has_sharded_buckets(scenario) && (!rules.is_on() || rules.per_tensor());
}

Dtype master_type(const Scenario& scenario) {
  const OptimizerPrecision& p = scenario.training.optimizer_precision;
  const Dtype dtype = scenario.training.compute_dtype(), whole = accumulation_of(dtype);
  if (!p.use_precision_aware_optimizer || dtype != Dtype::bf16) return whole;
  if (p.main_params_dtype == OptimizerPrecision::Parameters::fp16) return Dtype::f16;
  const LowPrecisionRules rules = rules_of(scenario.training.low_precision, scenario.compute_capability);
  const bool is_plain = !rules.is_on() || rules.is_delayed();
  return is_plain && !gathers_fp8(scenario) && !scenario.parallel.shards_gradients() ? Dtype::i16 : whole;
}

bool updates_first_chunk_first(const Scenario& scenario) {
  return scenario.overlap.overlap_param_gather_with_optimizer_step && has_sharded_buckets(scenario) &&
         !scenario.overlap.fp8_param_gather;
}

void append_optimizer(Lowered& lowered, const Optimizer& optimizer, const ModelParameters& parameters,
                      const Scenario& scenario, std::size_t role) {
  OptimizerWriter(lowered, optimizer, parameters, scenario, role).run();
}

}  // namespace stretto
