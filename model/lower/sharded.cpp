#include "model/lower/sharded.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "model/lower/builder.hpp"
#include "model/lower/sharding.hpp"
#include "model/lower/stage_writer.hpp"

namespace stretto {
namespace {

// Units from the head to the embedding, the order in which gradients become ready.
constexpr const char* kUnits[] = {"head", "final_norm", "layer", "embedding"};

std::string unit_of(const Parameter& p) {
  if (p.layer >= 0) return "layer";
  if (p.name == "wte.weight" || p.name == "wpe.weight") return "embedding";
  return p.name.starts_with("ln_f.") ? "final_norm" : "head";
}

class ParameterWriter {
 public:
  ParameterWriter(Schedule& schedule, const Scenario& scenario, const Expr& replica)
      : schedule_(schedule), scenario_(scenario), parallel_(scenario.parallel), replica_(replica) {}

  ShardedParameters run() {
    const std::vector<Parameter> all = parameters(scenario_.model);
    schedule_.state.pieces = add_model_arrays(schedule_.state, all, scenario_);
    const std::int64_t tp = parallel_.tensor_model_parallel_size;
    for (const char* name : kUnits)
      for (const bool replicated : {false, true}) {
        std::vector<Parameter> parts;
        std::vector<std::size_t> index;  // into `all`
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (all[i].layer > 0 || unit_of(all[i]) != name || is_replicated(all[i], tp) != replicated) continue;
          parts.push_back(part_of(all[i], tp));
          index.push_back(i);
        }
        if (!parts.empty()) add_unit(name, replicated, parts, index, all);
      }
    return std::move(result_);
  }

 private:
  void add_unit(const std::string& name, bool replicated, const std::vector<Parameter>& parts,
                const std::vector<std::size_t>& index, const std::vector<Parameter>& all) {
    ShardedUnit unit;
    unit.name = name + (replicated ? ".replicated" : "");
    unit.instances = name == "layer" ? scenario_.model.num_layers : 1;
    unit.replicated = replicated;
    unit.bucket = make_buckets(parts, 0, parallel_.shards()).front();
    unit.shard = unit.bucket.elements / parallel_.shards();
    unit.first_state = schedule_.state.buckets.size();
    add_tensors(unit, parts);

    const auto in_layer =
        std::count_if(all.begin(), all.end(), [](const Parameter& p) { return p.layer == 0; });  // parameters
    for (std::int64_t i = 0; i < unit.instances; ++i)
      for (const BucketEntry& entry : unit.bucket.entries) {
        StatePiece& piece = schedule_.state.pieces[index[entry.parameter] + static_cast<std::size_t>(i * in_layer)];
        piece.bucket = static_cast<std::uint32_t>(unit.first_state) + static_cast<std::uint32_t>(i);
        piece.offset = entry.offset;
      }
    for (BucketEntry& entry : unit.bucket.entries) entry.parameter += result_.model.parts.size();
    result_.model.parts.insert(result_.model.parts.end(), parts.begin(), parts.end());
    result_.units.push_back(std::move(unit));
  }

  // A family over the unit's layers in `buffers` storages, which take turns.
  TensorId rotating(const std::string& name, Dtype dtype, BufferKind kind, const ShardedUnit& unit,
                    std::int64_t buffers) {
    std::vector<TensorPlace> storages, places;
    for (std::int64_t i = 0; i < std::min(buffers, unit.instances); ++i)
      storages.push_back({add_storage(schedule_, name + (unit.instances > 1 ? "." + std::to_string(i) : ""), dtype,
                                      kind, unit.bucket.elements),
                          0});
    for (std::int64_t i = 0; i < unit.instances; ++i)
      places.push_back(storages[static_cast<std::size_t>(i) % storages.size()]);
    return add_placed_tensor(schedule_, name, 1, unit.bucket.elements, std::move(places));
  }
  // The unit's parameters in a whole, by their names.
  void name_parts(const std::string& prefix, TensorId whole, const ShardedUnit& unit,
                  const std::vector<Parameter>& parts, std::map<std::string, TensorId>& names) {
    for (const BucketEntry& entry : unit.bucket.entries) {
      const Parameter& p = parts[entry.parameter];
      std::vector<TensorPlace> places = schedule_.tensors[whole].places;
      for (TensorPlace& place : places) place.offset = entry.offset;
      names[p.name] = add_placed_tensor(schedule_, prefix + p.name, p.rows, p.cols, std::move(places));
    }
  }

  // Shards of gradients lie in a row, so that one operation zeroes them and one sums their squares.
  TensorId gradient_shard(const std::string& name, Dtype dtype, const ShardedUnit& unit) {
    std::optional<TensorId>& all = unit.replicated ? result_.replicated_gradients : result_.gradients;
    if (!all) {
      const std::string whole = unit.replicated ? "shard.gradients.replicated" : "shard.gradients";
      all = add_placed_tensor(schedule_, whole, 1, 0,
                              {{add_storage(schedule_, whole, dtype, BufferKind::gradient, 0), 0}});
    }
    const StorageId storage = schedule_.tensors[*all].places.front().storage;
    std::vector<TensorPlace> places;
    for (std::int64_t i = 0; i < unit.instances; ++i) {
      places.push_back({storage, schedule_.storages[storage].elements});
      schedule_.storages[storage].elements += unit.shard;
    }
    schedule_.tensors[*all].cols = schedule_.storages[storage].elements;
    return add_placed_tensor(schedule_, name, 1, unit.shard, std::move(places));
  }

  void add_tensors(ShardedUnit& unit, const std::vector<Parameter>& parts) {
    const Overlap& overlap = scenario_.overlap;
    const bool overlaps = overlap.fsdp_comm_overlap, cuts = parallel_.shards_parameters();
    const Dtype dtype = schedule_.compute_dtype, sums = accumulation_of(dtype);
    const std::string suffix = "." + unit.name;
    const std::int64_t n = unit.instances;
    const bool is_given_back = cuts && parallel_.reshard_after_forward;
    unit.parameter =
        rotating("unit.parameter" + suffix, dtype, cuts ? BufferKind::workspace : BufferKind::parameter, unit,
                 !is_given_back ? n
                 : overlaps     ? overlap.fsdp_prefetch_depth + 1
                                : 1);
    name_parts("", unit.parameter, unit, parts, result_.model.tensors.parameter);
    const auto shard = [&](const std::string& name, Dtype type, BufferKind kind) {
      return add_tensor(schedule_, name + suffix, type, kind, 1, unit.shard, n);
    };
    if (cuts) unit.parameter_shard = shard("shard.parameter", dtype, BufferKind::parameter);
    const bool trains = !scenario_.training.frozen_base;
    if (trains) {
      const std::int64_t buffers = overlaps ? 2 : 1;
      unit.gradient = rotating("unit.gradient" + suffix, sums, BufferKind::workspace, unit, buffers);
      name_parts("grad.", unit.gradient, unit, parts, result_.model.tensors.gradient);
      if (!overlap.grad_reduce_in_fp32)
        unit.low = rotating("unit.gradient_bf16" + suffix, Dtype::bf16, BufferKind::workspace, unit, buffers);
      unit.gradient_shard = gradient_shard("shard.gradient" + suffix, sums, unit);
      unit.m = shard("adam.m", sums, BufferKind::optimizer_state);
      unit.v = shard("adam.v", sums, BufferKind::optimizer_state);
      if (sums != dtype) unit.master = shard("adam.p", sums, BufferKind::optimizer_state);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const Expr own = replica_ * Expr(unit.shard);
      schedule_.state.buckets.push_back({0, own, unit.shard});
      StateBucket& kept = schedule_.state.buckets.back();
      const auto keep = [&](StatePart part, TensorId tensor, const Expr& begin) {
        const TensorPlace& place = schedule_.tensors[tensor].places[static_cast<std::size_t>(i)];
        kept.window(part) = {place.storage, begin - Expr(place.offset)};
      };
      keep(StatePart::parameters, cuts ? unit.parameter_shard : unit.parameter, cuts ? own : Expr(0));
      if (!trains) continue;
      keep(StatePart::gradients, unit.gradient_shard, own);
      keep(StatePart::adam_m, unit.m, own);
      keep(StatePart::adam_v, unit.v, own);
      if (unit.master) keep(StatePart::master, *unit.master, own);
    }
  }

  Schedule& schedule_;
  const Scenario& scenario_;
  const Parallel& parallel_;
  const Expr& replica_;
  ShardedParameters result_;
};

class ShardedWriter {
 public:
  ShardedWriter(Lowered& lowered, const ShardedParameters& parameters, const ShardedLanes& lanes,
                const Optimizer& optimizer, const ModelBlocks& blocks, const Scenario& scenario)
      : lowered_(lowered),
        schedule_(lowered.schedule),
        parameters_(parameters),
        units_(parameters.units),
        lanes_(lanes),
        o_(optimizer),
        blocks_(blocks),
        scenario_(scenario),
        casts_(!scenario.overlap.grad_reduce_in_fp32),
        cuts_parameters_(scenario.parallel.shards_parameters()) {
    const auto find = [&](TensorId whole, const std::map<std::string, TensorId>& names, std::size_t unit,
                          std::map<TensorId, std::size_t>& found) {
      for (const auto& [name, tensor] : names)
        if (schedule_.tensors[tensor].places.front().storage == schedule_.tensors[whole].places.front().storage)
          found[tensor] = unit;
    };
    for (std::size_t u = 0; u < units_.size(); ++u) {
      find(units_[u].parameter, parameters.model.tensors.parameter, u, unit_of_parameter_);
      if (trains()) find(units_[u].gradient, parameters.model.tensors.gradient, u, unit_of_gradient_);
    }
  }

  void run() {
    std::vector<Call> passes = std::move(schedule_.programs.front().order);
    std::vector<Call>& order = schedule_.programs.front().order;
    order.clear();
    // The calls of a micro-batch that add to a gradient.
    std::map<std::tuple<std::int64_t, std::size_t, std::int64_t>, std::pair<std::size_t, std::size_t>> adds;
    for (std::size_t c = 0; c < passes.size(); ++c)
      for (const Instance& instance : used_by(passes[c], unit_of_gradient_)) {
        const auto [at, is_new] = adds.try_emplace({passes[c].micro_batch, instance.first, instance.second}, c, c);
        at->second.second = c;
      }
    std::set<Instance> gathered;
    std::int64_t micro_batch = 0;
    for (std::size_t c = 0; c < passes.size(); ++c) {
      const Call call = passes[c];
      const std::set<Instance> gradients = used_by(call, unit_of_gradient_);
      const auto of = [&](const Instance& i) { return adds.at({call.micro_batch, i.first, i.second}); };
      for (const Instance& i : gradients)
        if (of(i).first == c) zero(i, call);
      if (cuts_parameters_) {
        if (call.micro_batch != micro_batch) gathered.clear();
        micro_batch = call.micro_batch;
        const std::set<Instance> used = used_by(call, unit_of_parameter_);
        for (const Instance& i : used)
          if (!gathered.contains(i)) place(gather(i.first, pass_of(call, i.first)), i, call.micro_batch);
        if (!used.empty() && scenario_.parallel.reshard_after_forward) gathered.clear();
        gathered.insert(used.begin(), used.end());
      }
      order.push_back(call);
      for (const Instance& i : gradients)
        if (of(i).second == c) reduce(i, call);
    }
    update();
  }

 private:
  using Instance = std::pair<std::size_t, std::int64_t>;  // unit and layer

  bool trains() const { return !scenario_.training.frozen_base; }
  std::set<Instance> used_by(const Call& call, const std::map<TensorId, std::size_t>& unit_of) const {
    std::set<Instance> used;
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
      for (const Access& access : schedule_.operations[schedule_.blocks[call.block].ops[i]].accesses)
        if (const auto unit = unit_of.find(access.view.tensor); unit != unit_of.end())
          used.emplace(unit->second, units_[unit->second].instances > 1 ? call.layer : 0);
    return used;
  }

  // ---- operations ----

  Expr layer_of(const ShardedUnit& unit) const { return unit.instances > 1 ? Expr(Coord::layer) : Expr(0); }
  View all_of(const ShardedUnit& unit, TensorId tensor) const { return whole(schedule_, tensor, layer_of(unit)); }
  // This rank's shard of a whole.
  View own_of(const ShardedUnit& unit, TensorId tensor) const {
    return {tensor, layer_of(unit), 0, o_.shard * Expr(unit.shard), 1, unit.shard, unit.shard};
  }
  View parameter_shard(const ShardedUnit& unit) const {
    return cuts_parameters_ ? all_of(unit, unit.parameter_shard) : own_of(unit, unit.parameter);
  }

  // The block of the one operation, which is made when it is used first.
  BlockId single(std::size_t u, const std::string& name, LaneId lane, Phase phase, Work work,
                 std::vector<Access> accesses) {
    const std::string full = name + "." + units_[u].name;
    const auto known = singles_.find(full);
    if (known != singles_.end()) return known->second;
    return singles_[full] = add_single(schedule_, {full, std::move(work), lane, phase, std::move(accesses)});
  }
  OpId place(BlockId block, const Instance& instance, std::int64_t micro_batch = 0) {
    std::vector<Call>& order = schedule_.programs.front().order;
    order.push_back(call_block(schedule_, block, instance.second, micro_batch));
    order.back().sequence = kSequence;
    return schedule_.blocks[block].ops.front();
  }

  // A gather for each pass: a layer may be gathered in all three, and a tied embedding for the head too.
  std::string pass_of(const Call& call, std::size_t unit) const {
    if (call.block == blocks_.head_forward && units_[unit].name.starts_with("embedding")) return "_head";
    const bool recomputes = scenario_.training.recompute.repeats_layers();
    for (const LayerBlocks& layer : blocks_.layers) {
      if (recomputes && call.block == layer.recompute) return "_recompute";
      if (call.block == layer.backward) return "_backward";
    }
    return call.block == blocks_.head_backward ? "_backward" : "";
  }
  BlockId gather(std::size_t u, const std::string& pass) {
    const ShardedUnit& unit = units_[u];
    const BlockId block =
        single(u, "dp.all_gather" + pass, lanes_.gather, Phase::param_sync,
               Collective{CollectiveKind::all_gather, lanes_.gather_communicator, unit.bucket.elements},
               {read(parameter_shard(unit)), write(all_of(unit, unit.parameter))});
    lowered_.sharded.gathers.insert(schedule_.blocks[block].ops.front());
    return block;
  }

  void zero(const Instance& i, const Call& call) {
    const ShardedUnit& unit = units_[i.first];
    lowered_.sharded.zeros.insert(place(single(i.first, "gradients.zero", lanes_.compute, Phase::setup,
                                               Fill{unit.bucket.elements, 0}, {write(all_of(unit, unit.gradient))}),
                                        i, call.micro_batch));
  }

  // Each rank adds its part of the sum over replicas to its shard of the sum over micro-batches. Several instances sum
  // their shards in every micro-batch too, as PyTorch's FSDP2 does.
  void reduce(const Instance& i, const Call& call) {
    const ShardedUnit& unit = units_[i.first];
    const View sum = own_of(unit, unit.gradient);
    const auto compute = [&](const std::string& name, Work work, std::vector<Access> accesses) {
      return place(single(i.first, name, lanes_.compute, Phase::grad_sync, std::move(work), std::move(accesses)), i,
                   call.micro_batch);
    };
    const TensorId reduced = casts_ ? unit.low : unit.gradient;
    if (casts_)
      compute("dp.cast_to_bf16", Cast{unit.bucket.elements},
              {read(all_of(unit, unit.gradient)), write(all_of(unit, unit.low))});
    lowered_.sharded.reductions.insert(
        place(single(i.first, "dp.reduce_scatter", lanes_.reduce, Phase::grad_sync,
                     Collective{CollectiveKind::reduce_scatter, lanes_.reduce_communicator, unit.bucket.elements},
                     {read(all_of(unit, reduced)), write(own_of(unit, reduced))}),
              i, call.micro_batch));
    if (scenario_.parallel.num_distributed_optimizer_instances > 1)
      lowered_.sharded.reductions.insert(
          place(single(i.first, "dp.all_reduce", lanes_.instances, Phase::grad_sync,
                       Collective{CollectiveKind::all_reduce, lanes_.instances_communicator, unit.shard},
                       {accumulate(own_of(unit, reduced))}),
                i, call.micro_batch));
    std::map<OpId, TensorId>& additions = lowered_.sharded.additions;
    if (casts_)
      additions.emplace(compute("dp.cast_to_f32", Cast{unit.shard}, {read(own_of(unit, unit.low)), write(sum)}),
                        unit.gradient);
    additions.emplace(compute("dp.add", Elementwise{ElementwiseFn::accumulate, 1, unit.shard},
                              {read(sum), accumulate(all_of(unit, unit.gradient_shard))}),
                      unit.gradient);
  }

  // ---- the optimizer ----

  // fn(unit, instance) for every unit of every layer, in the order in which gradients become ready.
  template <class Fn>
  void for_instances(Fn fn) {
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (units_[u].name.starts_with("layer")) {
        // Layer by layer, and not unit by unit.
        if (u > 0 && units_[u - 1].name.starts_with("layer")) continue;
        for (std::int64_t i = units_[u].instances; i-- > 0;)
          for (std::size_t of = u; of < units_.size() && units_[of].name.starts_with("layer"); ++of)
            fn(of, Instance{of, i});
      } else {
        fn(u, Instance{u, 0});
      }
  }

  void update() {
    if (trains()) norm();
    std::vector<Call>& order = schedule_.programs.front().order;
    order.push_back(call_block(schedule_, o_.sum_metrics));
    order.back().sequence = kSequence;
    note(schedule_.blocks[o_.sum_metrics].ops.front());
    if (!trains()) return;
    for_instances([&](std::size_t u, const Instance& i) { place(adamw(u), i); });
    if (cuts_parameters_) return;
    for_instances([&](std::size_t u, const Instance& i) { place(gather(u, ""), i); });
  }
  void note(OpId op) {
    if (lowered_.sharded.optimizer == kNone) lowered_.sharded.optimizer = op;
  }

  void norm() {
    const std::int64_t tp = scenario_.parallel.tensor_model_parallel_size;
    const auto once = [&](Operation operation) {
      const BlockId block = add_single(schedule_, std::move(operation));
      note(place(block, {0, 0}));
    };
    for (const auto& gradients : {parameters_.gradients, parameters_.replicated_gradients}) {
      if (!gradients) continue;
      const bool is_replicated = gradients == parameters_.replicated_gradients;
      const View all = whole(schedule_, *gradients);
      const std::string suffix = is_replicated ? ".replicated" : "";
      // Under sequence parallelism each rank has the gradients of replicated parameters for its tokens only.
      if (is_replicated && scenario_.parallel.sequence_parallel)
        once({"tp.all_reduce_norms",
              Collective{CollectiveKind::all_reduce, lanes_.tp_communicator, all.cols},
              lanes_.tp,
              Phase::grad_sync,
              {accumulate(all)}});
      once({"norm.sum_squares" + suffix,
            SumSquares{all.cols, (is_replicated ? tp : 1) * scenario_.parallel.num_distributed_optimizer_instances},
            lanes_.compute,
            Phase::optimizer,
            {read(all), accumulate(o_.norm_squared)}});
    }
  }

  BlockId adamw(std::size_t u) {
    const ShardedUnit& unit = units_[u];
    const std::optional<View> master = unit.master ? std::optional(all_of(unit, *unit.master)) : std::nullopt;
    std::vector<Access> accesses = adamw_accesses(o_, all_of(unit, unit.gradient_shard), parameter_shard(unit),
                                                  all_of(unit, unit.m), all_of(unit, unit.v), master);
    AdamW work{unit.shard, decayed_ranges(unit.bucket, parameters_.model.parts), scenario_.parallel.shards(),
               unit.master.has_value(), o_.shard};
    return single(u, "adamw", lanes_.compute, Phase::optimizer, std::move(work), std::move(accesses));
  }

  Lowered& lowered_;
  Schedule& schedule_;
  const ShardedParameters& parameters_;
  const std::vector<ShardedUnit>& units_;
  const ShardedLanes& lanes_;
  const Optimizer& o_;
  const ModelBlocks& blocks_;
  const Scenario& scenario_;
  const bool casts_, cuts_parameters_;
  std::map<TensorId, std::size_t> unit_of_parameter_, unit_of_gradient_;
  std::map<std::string, BlockId> singles_;
};

}  // namespace

bool shards_units(const Scenario& scenario) {
  return scenario.parallel.shards_gradients() && scenario.parallel.replicas() > 1;
}

ShardedParameters add_sharded_parameters(Schedule& schedule, const Scenario& scenario, const Expr& replica) {
  return ParameterWriter(schedule, scenario, replica).run();
}

void append_sharded(Lowered& lowered, const ShardedParameters& parameters, const ShardedLanes& lanes,
                    const Optimizer& optimizer, const ModelBlocks& blocks, const Scenario& scenario) {
  ShardedWriter(lowered, parameters, lanes, optimizer, blocks, scenario).run();
}

}  // namespace stretto
