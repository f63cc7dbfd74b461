#include "model/lower/optimizer.hpp"

#include <algorithm>
#include <optional>
#include <string>

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
        order_(lowered.schedule.programs[role].order),
        dp_(scenario.parallel.replicas()),
        shards_(scenario.parallel.optimizer_shards()),
        tp_(scenario.parallel.tensor_model_parallel_size),
        instances_(scenario.parallel.num_distributed_optimizer_instances),
        casts_(dp_ > 1 && !scenario.overlap.grad_reduce_in_fp32),
        sums_in_fp32_(stretto::sums_in_fp32(scenario)),
        sequence_parallel_(scenario.parallel.sequence_parallel && tp_ > 1) {
    if (scenario.training.frozen_base) return;  // no buckets to update
    for (std::size_t b = 0; b < lowered.buckets.size(); ++b)
      if (lowered.buckets[b].role == role) buckets_.push_back(b);
    updated_ = buckets_;
    if (updates_first_chunk_first(scenario))
      std::stable_partition(updated_.begin(), updated_.end(), [&](std::size_t b) { return ops(b).first_chunk; });
  }

  void run() {
    if (buckets_.empty()) {
      // The next step zeroes the metrics when they are summed.
      if (const std::optional<OpAddress> summed = sum_metrics())
        order_.front().waits.push_back({EdgeKind::finish_start, {summed->op, 0, 0, 0, 1}});
      return;
    }
    if (sequence_parallel_) sum_norm_gradients();
    if (dp_ > 1) reduce();
    sum_squares();
    const std::optional<OpAddress> summed = sum_metrics();
    step(summed);
    if (shards_ == 1) return;
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
  View shard_of(TensorId tensor, std::int64_t elements) const {
    return View{tensor, 0, 0, o_.shard * Expr(elements), 1, elements, elements};
  }
  static std::string suffix(std::size_t b) { return ".b" + std::to_string(b); }
  const BucketTensors& tensors(std::size_t b) const { return o_.tensors[b]; }
  BucketOps& ops(std::size_t b) { return lowered_.bucket_ops[b]; }
  std::int64_t shard(std::size_t b) const { return lowered_.buckets[b].elements / shards_; }
  // The latest operation on the compute lane. That of calls before `computed_end_` is known.
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

  // Under sequence parallelism each rank has the gradients of replicated parameters for its tokens only.
  void sum_norm_gradients() {
    for (const std::size_t b : buckets_) {
      if (!lowered_.buckets[b].replicated) continue;
      const Edge ready = computed();
      ops(b).tp_all_reduce =
          place({"tp.all_reduce_norms" + suffix(b),
                 Collective{CollectiveKind::all_reduce, o_.tp_communicator, lowered_.buckets[b].elements},
                 o_.tp,
                 Phase::grad_sync,
                 {accumulate(whole(schedule_, tensors(b).gradient))}});
      order_.back().waits.push_back(ready);
      summed_norms_ = Edge{EdgeKind::finish_start, {ops(b).tp_all_reduce, 0, 0, 0, 0}};
    }
  }

  // Sums over data-parallel ranks: of a bucket where every rank updates it, else of the shard that the rank does.
  Operation reduction(std::size_t b, TensorId reduced) const {
    const std::int64_t elements = lowered_.buckets[b].elements;
    const bool scatters = shards_ > 1;
    Operation operation{(scatters ? "dp.reduce_scatter" : "dp.all_reduce") + suffix(b),
                        Collective{scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                                   o_.dp_communicator, elements},
                        o_.dp,
                        Phase::grad_sync,
                        {accumulate(whole(schedule_, reduced))}};
    if (scatters) operation.accesses = {read(whole(schedule_, reduced)), write(shard_of(reduced, shard(b)))};
    return operation;
  }

  // The same by an all-to-all, and an addition in f32 of what it has brought.
  Operation exchange(std::size_t b) const {
    return {"dp.all_to_all" + suffix(b),
            Collective{CollectiveKind::all_to_all, o_.dp_communicator, lowered_.buckets[b].elements},
            o_.dp,
            Phase::grad_sync,
            {read(whole(schedule_, tensors(b).low)), write(whole(schedule_, tensors(b).parts))}};
  }

  void reduce() {
    bool is_first = true;
    std::optional<OpId> across;  // instances, of the bucket before
    for (const std::size_t b : buckets_) {
      const std::int64_t elements = lowered_.buckets[b].elements;
      const TensorId reduced = casts_ ? tensors(b).low : tensors(b).gradient;
      if (casts_) {
        ops(b).cast_down = place({"dp.cast_to_bf16" + suffix(b),
                                  Cast{elements},
                                  o_.compute,
                                  Phase::grad_sync,
                                  {read(whole(schedule_, tensors(b).gradient)), write(whole(schedule_, reduced))}});
        if (ops(b).tp_all_reduce != kNone) wait_for(ops(b).tp_all_reduce);
      }
      const Edge ready = computed();
      ops(b).reduction = place(sums_in_fp32_ ? exchange(b) : reduction(b, reduced));
      // A reduction that follows another on the lane has the same operations before it: one edge says it.
      if (!casts_ && is_first && summed_norms_)
        order_.back().waits.push_back(*summed_norms_);
      else if (casts_ || is_first)
        order_.back().waits.push_back(ready);
      is_first = false;
      if (sums_in_fp32_) {
        ops(b).local_sum =
            place({"dp.local_sum" + suffix(b),
                   LocalReduce{shards_, shard(b)},
                   o_.compute,
                   Phase::grad_sync,
                   {read(whole(schedule_, tensors(b).parts)), write(shard_of(tensors(b).gradient, shard(b)))}});
        wait_for(ops(b).reduction);
      }
      if (instances_ == 1) continue;
      if (across) wait_for(*across);
      ops(b).instances_all_reduce = place({"dp.all_reduce_instances" + suffix(b),
                                           Collective{CollectiveKind::all_reduce, o_.instances_communicator, shard(b)},
                                           o_.instances,
                                           Phase::grad_sync,
                                           {accumulate(shard_of(reduced, shard(b)))}});
      wait_for(ops(b).reduction);
      across = ops(b).instances_all_reduce;
    }
  }

  void sum_squares() {
    for (const std::size_t b : buckets_) {
      const Bucket& bucket = lowered_.buckets[b];
      const View gradient = shard_of(tensors(b).gradient, shard(b));
      if (casts_ && !sums_in_fp32_) {
        ops(b).cast_up = place({"dp.cast_to_f32" + suffix(b),
                                Cast{shard(b)},
                                o_.compute,
                                Phase::grad_sync,
                                {read(shard_of(tensors(b).low, shard(b))), write(gradient)}});
        wait_for(ops(b).last_reduction());
      }
      if (bucket.tied) {
        const Edge ready = computed();
        order_.push_back(call_block(schedule_, o_.sum_tied));
        ops(b).tied_all_reduce = schedule_.blocks[order_.back().block].ops.front();
        order_.back().waits.push_back(ready);
        if (dp_ > 1 && !casts_) wait_for(ops(b).last_reduction());
      }
      ops(b).sum_squares =
          place({"norm.sum_squares" + suffix(b),
                 SumSquares{shard(b), (bucket.replicated ? tp_ : 1) * (bucket.tied ? 2 : 1) * (dp_ / shards_)},
                 o_.compute,
                 Phase::optimizer,
                 {read(gradient), accumulate(o_.norm_squared)}});
      if (bucket.tied)
        wait_for(ops(b).tied_all_reduce);
      else if (dp_ > 1 && !casts_)
        wait_for(ops(b).last_reduction());
      if (dp_ == 1 && ops(b).tp_all_reduce != kNone) wait_for(ops(b).tp_all_reduce);
    }
  }

  std::optional<OpAddress> sum_metrics() {
    if (!o_.sums_metrics) return std::nullopt;
    const Edge ready = computed();
    order_.push_back(call_block(schedule_, o_.sum_metrics));
    order_.back().waits.push_back(ready);
    return OpAddress{schedule_.blocks[o_.sum_metrics].ops.front(), 0, 0, 0, 0};
  }

  void step(const std::optional<OpAddress>& summed) {
    bool is_first = true;
    for (const std::size_t b : updated_) {
      const BucketTensors& t = tensors(b);
      const std::optional<View> master = t.master ? std::optional(whole(schedule_, *t.master)) : std::nullopt;
      std::vector<Access> accesses = adamw_accesses(o_, shard_of(t.gradient, shard(b)), shard_of(t.parameter, shard(b)),
                                                    whole(schedule_, t.m), whole(schedule_, t.v), master);
      AdamW work{shard(b), decayed_ranges(lowered_.buckets[b], parameters_.parts), shards_, t.master.has_value(),
                 o_.shard};
      ops(b).adamw = place({"adamw" + suffix(b), std::move(work), o_.compute, Phase::optimizer, std::move(accesses)});
      if (is_first && summed) order_.back().waits.push_back({EdgeKind::finish_start, *summed});
      is_first = false;
    }
  }

  void all_gather() {
    std::optional<OpId> last;
    for (const std::size_t b : buckets_) {
      if (tensors(b).fp8) continue;
      ops(b).all_gather =
          place({"dp.all_gather" + suffix(b),
                 Collective{CollectiveKind::all_gather, o_.dp_communicator, lowered_.buckets[b].elements},
                 o_.dp,
                 Phase::param_sync,
                 {read(shard_of(tensors(b).parameter, shard(b))), write(whole(schedule_, tensors(b).parameter))}});
      wait_for(ops(b).adamw);
      last = ops(b).all_gather;
    }
    // The next step starts when the parameters are whole again.
    if (last) order_.front().waits.push_back({EdgeKind::finish_start, {*last, 0, 0, 0, 1}});
  }

  // Behind the step's first call, in sequence: what AdamW of the step before has left is rounded, gathered, and takes
  // the place of the parameters, the own shard's included, so that all ranks compute with the same.
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
      const std::int64_t packed = ScaledCast::packed_bytes(shard(b));
      ops(b).to_fp8 = add({"dp.cast_to_fp8" + suffix(b),
                           ScaledCast{Pass::forward, 1, shard(b)},
                           o_.compute,
                           Phase::param_sync,
                           {read(shard_of(t.parameter, shard(b))), write(whole(schedule_, *t.fp8_shard))}});
      ops(b).all_gather = add({"dp.all_gather" + suffix(b),
                               Collective{CollectiveKind::all_gather, o_.dp_communicator, shards_ * packed},
                               o_.dp,
                               Phase::param_sync,
                               {read(whole(schedule_, *t.fp8_shard)), write(whole(schedule_, *t.fp8))}});
      ops(b).from_fp8 = add({"dp.cast_from_fp8" + suffix(b),
                             ScaledCast{Pass::backward, shards_, shard(b)},
                             o_.compute,
                             Phase::param_sync,
                             {read(whole(schedule_, *t.fp8)), write(whole(schedule_, t.parameter))}});
    }
    order_.insert(order_.begin() + 1, calls.begin(), calls.end());
  }

  Lowered& lowered_;
  Schedule& schedule_;
  const Optimizer& o_;
  const ModelParameters& parameters_;
  std::vector<Call>& order_;
  const std::int64_t dp_, shards_, tp_;  // dp_: all that have the same parameters
  const std::int64_t instances_;
  const bool casts_, sums_in_fp32_, sequence_parallel_;
  std::vector<std::size_t> buckets_;  // of the role
  std::vector<std::size_t> updated_;  // the same, in the order of their updates
  std::optional<Edge> summed_norms_;  // the last of them
  std::size_t computed_end_ = 0;
  Edge computed_;
};

// Buckets that are reduced, as long as something is trained.
bool has_sharded_buckets(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  return parallel.shards_optimizer() && !parallel.shards_gradients() && parallel.shards() > 1 &&
         !scenario.training.frozen_base;
}

}  // namespace

std::vector<Access> adamw_accesses(const Optimizer& optimizer, View gradient, View parameter, View m, View v,
                                   std::optional<View> master) {
  std::vector<Access> accesses = {read(gradient),        read(optimizer.norm_squared),
                                  read(optimizer.hyper), master ? write(parameter) : accumulate(parameter),
                                  accumulate(m),         accumulate(v)};
  if (master) accesses.push_back(accumulate(*master));
  return accesses;
}

bool sums_in_fp32(const Scenario& scenario) {
  return scenario.overlap.reduce_scatter_with_fp32_accumulation && !scenario.overlap.grad_reduce_in_fp32 &&
         has_sharded_buckets(scenario);
}

bool gathers_fp8(const Scenario& scenario) {
  return scenario.overlap.fp8_param_gather && has_sharded_buckets(scenario);
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
