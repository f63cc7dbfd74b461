#include "model/lower/sharded.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "model/lower/builder.hpp"
#include "model/lower/sharding.hpp"
#include "model/lower/stage_writer.hpp"

namespace stretto {
namespace {

std::string unit_of(const LayerSpec& layer) { return "layer" + layer.suffix_of_parameters(); }
// Returns the units from the head to the embedding, the order in which gradients become ready.
std::vector<std::string> units_of(const Transformer& model) {
  std::vector<std::string> units = {"head", "tied_head", "final_norm"};
  for (const LayerSpec& layer : model.layer_kinds())
    if (const std::string unit = unit_of(layer); std::find(units.begin(), units.end(), unit) == units.end())
      units.push_back(unit);
  units.insert(units.end(), {"embedding", "tied_embedding"});
  return units;
}

std::string unit_of(const Parameter& p, const Transformer& model, bool is_tied) {
  if (p.layer >= 0) return unit_of(model.layer(p.layer));
  if (p.name == kTiedHeadWeight) return "tied_head";
  if (is_tied && p.name == "wte.weight") return "tied_embedding";
  if (p.name == "wte.weight" || p.name == "wpe.weight") return "embedding";
  return p.name.starts_with("ln_f.") ? "final_norm" : "head";
}

// Returns [layer] the program whose ranks have the layer.
std::vector<std::size_t> roles_of_layers(const Scenario& scenario) {
  const StageMap map = stage_map(scenario.parallel);
  const std::vector<ModelChunk> chunks = model_chunks(scenario.model, scenario.parallel);
  std::vector<std::size_t> roles;
  for (std::size_t piece = 0; piece < chunks.size(); ++piece)
    roles.resize(static_cast<std::size_t>(chunks[piece].end_layer),
                 static_cast<std::size_t>(map.stage_of(static_cast<std::int64_t>(piece))));
  return roles;
}

class ParameterWriter {
 public:
  ParameterWriter(Schedule& schedule, const Scenario& scenario, const std::vector<ParameterClass>& classes)
      : schedule_(schedule),
        scenario_(scenario),
        parallel_(scenario.parallel),
        classes_(classes),
        map_(stage_map(scenario.parallel)),
        roles_(roles_of_layers(scenario)) {}

  ShardedParameters run() {
    std::vector<Parameter> all = parameters(scenario_.model);
    std::vector<StatePiece>& pieces = schedule_.state.pieces = add_model_arrays(schedule_.state, all, scenario_);
    const bool is_tied = ties_across_stages(scenario_);
    if (is_tied) {
      // The last stage's copy is another piece of the first array.
      all.insert(all.begin() + 1, all.front());
      all[1].name = kTiedHeadWeight;
      pieces.insert(pieces.begin() + 1, pieces.front());
    }
    for (const std::string& name : units_of(scenario_.model))
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        Instances of_layers;
        for (std::size_t i = 0; i < all.size(); ++i)
          if (unit_of(all[i], scenario_.model, is_tied) == name && class_of(classes_, all[i]) == c)
            of_layers[std::max<std::int64_t>(all[i].layer, 0)].push_back(i);
        if (!of_layers.empty()) add_unit(name, c, all, of_layers);
      }
    std::stable_sort(result_.gradients.begin(), result_.gradients.end(),
                     [](const auto& a, const auto& b) { return a.parameter_class < b.parameter_class; });
    return std::move(result_);
  }

 private:
  // [layer] indices of a unit's parameters, equal in number for all layers; layer 0 outside the layers.
  using Instances = std::map<std::int64_t, std::vector<std::size_t>>;

  void add_unit(const std::string& name, std::size_t c, const std::vector<Parameter>& all, const Instances& of_layers) {
    std::vector<Parameter> parts;
    for (const std::size_t i : of_layers.begin()->second) parts.push_back(part_of(all[i], parallel_));
    ShardedUnit unit;
    // the name of a tied embedding's unit says the class already
    unit.name = name + (classes_[c].is_tied ? "" : classes_[c].suffix);
    for (const auto& [layer, indices] : of_layers) unit.layers.push_back(layer);
    if (parts.front().layer >= 0) {
      unit.roles = roles_;
    } else {
      const bool is_first = name.ends_with("embedding");
      unit.roles = {static_cast<std::size_t>(is_first ? map_.first_stage() : map_.last_stage())};
    }
    unit.instances = std::ssize(unit.roles);
    unit.bucket = make_buckets(parts, 0, classes_[c].shards).front();
    unit.bucket.parameter_class = c;
    unit.shard = unit.bucket.elements / classes_[c].shards;
    unit.first_state = schedule_.state.buckets.size();
    add_tensors(unit, parts);

    std::uint32_t state = static_cast<std::uint32_t>(unit.first_state);
    for (const auto& [layer, indices] : of_layers) {
      for (const BucketEntry& entry : unit.bucket.entries) {
        StatePiece& piece = schedule_.state.pieces[indices[entry.parameter]];
        piece.bucket = state;
        piece.offset = entry.offset;
      }
      ++state;
    }
    for (BucketEntry& entry : unit.bucket.entries) entry.parameter += result_.model.parts.size();
    result_.model.parts.insert(result_.model.parts.end(), parts.begin(), parts.end());
    result_.units.push_back(std::move(unit));
  }

  // Returns the places of a family: place(layer) for each layer of the unit. No operation uses the places of other
  // layers.
  template <class Place>
  static std::vector<TensorPlace> places_of(const ShardedUnit& unit, Place place) {
    std::vector<TensorPlace> places;
    for (const std::int64_t layer : unit.layers) {
      const TensorPlace own = place(layer);
      places.resize(static_cast<std::size_t>(unit.instances), own);
      places[static_cast<std::size_t>(layer)] = own;
    }
    return places;
  }
  static std::string suffix_of(const ShardedUnit& unit, const char* mark, std::int64_t number) {
    return unit.instances > 1 ? mark + std::to_string(number) : "";
  }

  // Adds a family over the unit's layers in `buffers` storages, which the layers of a stage take in turn; 0: a storage
  // for each layer.
  TensorId rotating(const std::string& name, Dtype dtype, BufferKind kind, const ShardedUnit& unit,
                    std::int64_t buffers) {
    std::map<std::int64_t, StorageId> storages;  // [number] all stages use the same storages
    std::map<std::size_t, std::int64_t> count;   // [role] number of the unit's layers
    std::vector<TensorPlace> places = places_of(unit, [&](std::int64_t layer) {
      std::int64_t number = layer;
      if (buffers > 0 && unit.instances > 1) number = count[unit.roles[std::size_t(layer)]]++ % buffers;
      if (!storages.contains(number))
        storages[number] =
            add_storage(schedule_, name + suffix_of(unit, ".", number), dtype, kind, unit.bucket.elements);
      return TensorPlace{storages[number], 0};
    });
    return add_placed_tensor(schedule_, name, 1, unit.bucket.elements, std::move(places));
  }
  // Adds the unit's parameters as views of `whole`, by name.
  void name_parts(const std::string& prefix, TensorId whole, const ShardedUnit& unit,
                  const std::vector<Parameter>& parts, std::map<std::string, TensorId>& names) {
    for (const BucketEntry& entry : unit.bucket.entries) {
      const Parameter& p = parts[entry.parameter];
      std::vector<TensorPlace> places = schedule_.tensors[whole].places;
      for (TensorPlace& place : places) place.offset = entry.offset;
      // Other kinds of layers may have a parameter of this name in their unit.
      const auto [known, is_new] = names.try_emplace(p.name, 0);
      if (is_new) {
        known->second = add_placed_tensor(schedule_, prefix + p.name, p.rows, p.cols, std::move(places));
        continue;
      }
      for (const std::int64_t layer : unit.layers)
        schedule_.tensors[known->second].places[static_cast<std::size_t>(layer)] =
            places[static_cast<std::size_t>(layer)];
    }
  }

  TensorId gradient_shard(const std::string& name, Dtype dtype, const ShardedUnit& unit) {
    std::vector<TensorPlace> places = places_of(unit, [&](std::int64_t layer) {
      Tensor& all = schedule_.tensors[gradients_of(unit.roles[static_cast<std::size_t>(layer)], unit, dtype)];
      const TensorPlace own{all.places.front().storage, all.cols};
      all.cols += unit.shard;
      schedule_.storages[own.storage].elements = all.cols;
      return own;
    });
    return add_placed_tensor(schedule_, name, 1, unit.shard, std::move(places));
  }
  TensorId gradients_of(std::size_t role, const ShardedUnit& unit, Dtype dtype) {
    for (const GradientShards& known : result_.gradients)
      if (known.role == role && known.parameter_class == unit.parameter_class()) return known.all;
    GradientShards& added = result_.gradients.emplace_back(GradientShards{role, unit.parameter_class()});
    const std::string name = "shard.gradients" + classes_[unit.parameter_class()].suffix +
                             (map_.stages > 1 ? ".stage" + std::to_string(role) : "");
    const StorageId storage = add_storage(schedule_, name, dtype, BufferKind::gradient, 0);
    return added.all = add_placed_tensor(schedule_, name, 1, 0, {{storage, 0}});
  }

  void add_tensors(ShardedUnit& unit, const std::vector<Parameter>& parts) {
    const Overlap& overlap = scenario_.overlap;
    const bool overlaps = overlap.fsdp_comm_overlap, cuts = parallel_.shards_parameters(),
               keeps = keeps_whole(parallel_);
    const Dtype dtype = schedule_.compute_dtype, sums = accumulation_of(dtype);
    const std::string suffix = "." + unit.name;
    const bool is_given_back = cuts && parallel_.reshard_after_forward;
    unit.parameter =
        rotating("unit.parameter" + suffix, dtype, cuts && !keeps ? BufferKind::workspace : BufferKind::parameter, unit,
                 !is_given_back ? 0
                 : overlaps     ? overlap.fsdp_prefetch_depth + 1
                                : 1);
    name_parts("", unit.parameter, unit, parts, result_.model.tensors.parameter);
    const auto shard = [&](const std::string& name, Dtype type, BufferKind kind) {
      return add_placed_tensor(
          schedule_, name + suffix, 1, unit.shard, places_of(unit, [&](std::int64_t layer) {
            return TensorPlace{
                add_storage(schedule_, name + suffix + suffix_of(unit, ".l", layer), type, kind, unit.shard), 0};
          }));
    };
    const bool is_root = parts.front().layer < 0;
    with_role(schedule_, is_root ? TensorRole::root_unit_parameters : TensorRole::unit_parameters, unit.parameter);
    if (cuts)
      unit.parameter_shard =
          with_role(schedule_, TensorRole::parameter_shard, shard("shard.parameter", dtype, BufferKind::parameter));
    const bool trains = !scenario_.training.frozen_base;
    if (trains) {
      const std::int64_t buffers = keeps ? 0 : overlaps ? 2 : 1;
      unit.gradient =
          rotating("unit.gradient" + suffix, sums, keeps ? BufferKind::gradient : BufferKind::workspace, unit, buffers);
      name_parts("grad.", unit.gradient, unit, parts, result_.model.tensors.gradient);
      if (!overlap.grad_reduce_in_fp32)
        unit.low =
            with_role(schedule_, TensorRole::gradients_to_reduce,
                      rotating("unit.gradient_bf16" + suffix, Dtype::bf16, BufferKind::workspace, unit, buffers));
      unit.gradient_shard = gradient_shard("shard.gradient" + suffix, sums, unit);
      const OptimizerPrecision& types = scenario_.training.optimizer_precision;
      unit.m = shard("adam.m", dtype_of(types.exp_avg_dtype, sums), BufferKind::optimizer_state);
      unit.v = shard("adam.v", dtype_of(types.exp_avg_sq_dtype, sums), BufferKind::optimizer_state);
      if (sums != dtype)
        unit.master = with_role(schedule_, TensorRole::master_parameters,
                                shard("adam.p", master_type(scenario_), BufferKind::optimizer_state));
    }
    for (const std::int64_t layer : unit.layers) {
      const Expr own = classes_[unit.parameter_class()].shard() * Expr(unit.shard);
      schedule_.state.buckets.push_back({unit.roles[static_cast<std::size_t>(layer)], own, unit.shard});
      StateBucket& kept = schedule_.state.buckets.back();
      const auto keep = [&](StatePart part, TensorId tensor, const Expr& begin) {
        const TensorPlace& place = schedule_.tensors[tensor].places[static_cast<std::size_t>(layer)];
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
  const std::vector<ParameterClass>& classes_;
  const StageMap map_;
  const std::vector<std::size_t> roles_;  // [layer]
  ShardedParameters result_;
};

class ShardedWriter {
 public:
  ShardedWriter(Lowered& lowered, const ShardedParameters& parameters, const Optimizer& optimizer,
                const ModelBlocks& blocks, const Scenario& scenario)
      : lowered_(lowered),
        schedule_(lowered.schedule),
        parameters_(parameters),
        units_(parameters.units),
        o_(optimizer),
        blocks_(blocks),
        scenario_(scenario),
        casts_(!scenario.overlap.grad_reduce_in_fp32),
        cuts_parameters_(scenario.parallel.shards_parameters()),
        keeps_(keeps_whole(scenario.parallel)) {
    const ParameterTensors& tensors = parameters.model.tensors;
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (const BucketEntry& entry : units_[u].bucket.entries) {
        const std::string& name = parameters.model.parts[entry.parameter].name;
        for (const std::int64_t layer : units_[u].layers) {
          unit_of_parameter_[{tensors.parameter.at(name), layer}] = u;
          if (trains()) unit_of_gradient_[{tensors.gradient.at(name), layer}] = u;
        }
      }
  }

  void run() {
    for (role_ = 0; role_ < schedule_.programs.size(); ++role_) {
      write_passes();
      update();
    }
  }

 private:
  using Instance = std::pair<std::size_t, std::int64_t>;  // (unit, layer)
  struct Gradient {
    std::size_t first = 0;  // first call that adds to it
    std::size_t last = 0;   // call after which it is reduced
  };
  // The gradients of a micro-batch, or of the step where they are kept.
  using Gradients = std::map<std::pair<std::int64_t, Instance>, Gradient>;
  using UnitOf = std::map<std::pair<TensorId, std::int64_t>, std::size_t>;  // (tensor, layer) → unit

  std::int64_t sum_of(const Call& call) const { return keeps_ ? 0 : call.micro_batch; }
  Gradients find_gradients(const std::vector<Call>& passes) const {
    Gradients gradients;
    std::map<std::int64_t, std::size_t> last;  // [chunk] last call that adds to any gradient
    for (std::size_t c = 0; c < passes.size(); ++c)
      for (const Instance& instance : used_by(passes[c], unit_of_gradient_)) {
        gradients.try_emplace({sum_of(passes[c]), instance}, Gradient{c, c}).first->second.last = c;
        last[passes[c].chunk] = c;
      }
    if (!keeps_) return gradients;
    // The reduction comes after the chunk and after the messages that follow it, because the previous stage waits for
    // these messages.
    for (auto& [chunk, c] : last)
      while (c + 1 < passes.size() && is_message(passes[c + 1])) ++c;
    for (auto& [of, gradient] : gradients) gradient.last = last.at(passes[gradient.last].chunk);
    return gradients;
  }
  bool is_message(const Call& call) const {
    return std::holds_alternative<PointToPoint>(schedule_.operations[op_of(call)].work);
  }

  void write_passes() {
    std::vector<Call> passes = std::move(order());
    order().clear();
    const Gradients gradients = find_gradients(passes);
    std::map<std::size_t, std::vector<Instance>> zeroed, reduced;  // [call] instances, in the order of units
    for (const auto& [of, gradient] : gradients) {
      zeroed[gradient.first].push_back(of.second);
      reduced[gradient.last].push_back(of.second);
    }
    const Parallel& parallel = scenario_.parallel;
    std::set<Instance> gathered;
    std::int64_t micro_batch = 0;
    for (std::size_t c = 0; c < passes.size(); ++c) {
      const Call call = passes[c];
      for (const Instance& i : zeroed[c]) zero(i, call);
      if (cuts_parameters_) {
        const std::set<Instance> used = used_by(call, unit_of_parameter_);
        if (!used.empty() && call.micro_batch != micro_batch && !keeps_) gathered.clear();
        if (!used.empty()) micro_batch = call.micro_batch;
        for (const Instance& i : used)
          if (!gathered.contains(i)) place(gather(i.first, pass_of(call, i.first)), i, call);
        if (!used.empty() && parallel.reshard_after_forward) gathered.clear();
        gathered.insert(used.begin(), used.end());
      }
      order().push_back(call);
      // Nothing is kept gathered while a stage waits for others.
      if (is_message(call) && parallel.reshard_after_forward) gathered.clear();
      for (const Instance& i : reduced[c]) reduce(i, call);
    }
  }

  std::vector<Call>& order() { return schedule_.programs[role_].order; }
  bool has_stages() const { return scenario_.parallel.pipeline_model_parallel_size > 1; }
  bool trains() const { return !scenario_.training.frozen_base; }
  std::set<Instance> used_by(const Call& call, const UnitOf& unit_of) const {
    std::set<Instance> used;
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
      for (const Access& access : schedule_.operations[schedule_.blocks[call.block].ops[i]].accesses) {
        const TensorId tensor = access.view.tensor;
        const std::int64_t layer = schedule_.tensors[tensor].layers > 1 ? call.layer : 0;
        if (const auto unit = unit_of.find({tensor, layer}); unit != unit_of.end()) used.emplace(unit->second, layer);
      }
    return used;
  }

  // ---- operations ----

  Expr layer_of(const ShardedUnit& unit) const { return unit.instances > 1 ? Expr(Coord::layer) : Expr(0); }
  View all_of(const ShardedUnit& unit, TensorId tensor) const { return whole(schedule_, tensor, layer_of(unit)); }
  // Returns this rank's shard of a whole tensor.
  View own_of(const ShardedUnit& unit, TensorId tensor) const {
    return {tensor, layer_of(unit), 0, class_of(unit).shard() * Expr(unit.shard), 1, unit.shard, unit.shard};
  }
  const ParameterClass& class_of(const ShardedUnit& unit) const { return lowered_.classes[unit.parameter_class()]; }
  View parameter_shard(const ShardedUnit& unit) const {
    return cuts_parameters_ ? all_of(unit, unit.parameter_shard) : own_of(unit, unit.parameter);
  }

  // Returns the block of one operation, which is added at its first use.
  BlockId single(Operation operation) {
    const auto [known, is_new] = singles_.try_emplace(operation.name);
    if (is_new) known->second = add_single(schedule_, std::move(operation));
    return known->second;
  }
  std::string suffix(std::size_t u) const { return "." + units_[u].name; }
  // Appends the block to the order, in the sequence of call `of`, if any.
  OpId place(BlockId block, const Instance& instance, const Call& of = {}) {
    order().push_back(call_block(schedule_, block, instance.second, of.micro_batch));
    order().back().chunk = of.chunk;
    order().back().sequence = std::max(of.sequence, kSequence);
    return schedule_.blocks[block].ops.front();
  }

  // Returns the suffix for a gather of a pass: a layer may be gathered in all three passes, and a tied embedding for
  // the head too.
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
    const BlockId block = single(gather_parameters("dp.all_gather" + pass + suffix(u), class_of(unit).gather,
                                                   parameter_shard(unit), all_of(unit, unit.parameter)));
    lowered_.sharded.gathers.insert(schedule_.blocks[block].ops.front());
    return block;
  }

  void zero(const Instance& i, const Call& call) {
    const ShardedUnit& unit = units_[i.first];
    lowered_.sharded.zeros.insert(place(single({"gradients.zero" + suffix(i.first),
                                                Fill{unit.bucket.elements, 0},
                                                o_.compute,
                                                Phase::setup,
                                                {write(all_of(unit, unit.gradient))}}),
                                        i, call));
  }

  // Each rank adds its shard of the sum over replicas to its shard of the sum over micro-batches; where whole gradients
  // are summed, the shard is the result itself. Several instances sum their shards every time too, as PyTorch's FSDP2
  // does.
  void reduce(const Instance& i, const Call& call) {
    const ShardedUnit& unit = units_[i.first];
    const ParameterClass& of = class_of(unit);
    const std::string name = suffix(i.first);
    const View gradient = all_of(unit, unit.gradient),
               sum = keeps_ ? all_of(unit, unit.gradient_shard) : own_of(unit, unit.gradient);
    View whole = gradient, reduced = sum;
    const auto add = [&](Operation operation) { return place(single(std::move(operation)), i, call); };
    if (casts_) {
      whole = all_of(unit, unit.low);
      reduced = own_of(unit, unit.low);
      add(cast_gradient("dp.cast_to_bf16" + name, o_, gradient, whole));
    }
    lowered_.sharded.reductions.insert(add(reduce_gradient(name, of, whole, reduced)));
    std::map<OpId, TensorId>& additions = lowered_.sharded.additions;
    // Nobody shares a gradient of one shard, and its sum stays where it is.
    if (keeps_ && !casts_ && of.shards == 1)
      additions.emplace(add(cast_gradient("dp.keep" + name, o_, own_of(unit, unit.gradient), reduced)), unit.gradient);
    if (of.instances.exists())
      lowered_.sharded.reductions.insert(add(reduce_instances("dp.all_reduce" + name, of, reduced)));
    if (casts_) additions.emplace(add(cast_gradient("dp.cast_to_f32" + name, o_, reduced, sum)), unit.gradient);
    if (!keeps_)
      additions.emplace(add({"dp.add" + name,
                             Elementwise{ElementwiseFn::accumulate, 1, unit.shard},
                             o_.compute,
                             Phase::grad_sync,
                             {read(sum), accumulate(all_of(unit, unit.gradient_shard))}}),
                        unit.gradient);
  }

  // ---- the optimizer ----

  // Calls fn(unit, instance) for every unit of every layer of the role, in the order in which gradients become ready.
  template <class Fn>
  void for_instances(Fn fn) {
    const auto visit = [&](std::size_t u, std::int64_t i) {
      const std::vector<std::int64_t>& layers = units_[u].layers;
      if (!std::binary_search(layers.begin(), layers.end(), i)) return;
      if (units_[u].roles[static_cast<std::size_t>(i)] == role_) fn(u, Instance{u, i});
    };
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (units_[u].name.starts_with("layer")) {
        // The order is layer by layer, and not unit by unit.
        if (u > 0 && units_[u - 1].name.starts_with("layer")) continue;
        for (std::int64_t i = units_[u].instances; i-- > 0;)
          for (std::size_t of = u; of < units_.size() && units_[of].name.starts_with("layer"); ++of) visit(of, i);
      } else {
        visit(u, 0);
      }
  }

  void update() {
    const std::optional<Call> put_off = last_put_off();
    const std::size_t begin = order().size();
    if (trains()) norm();
    place(*o_.sum_metrics, {});
    Call& first = order()[begin];
    if (put_off && schedule_.operations[op_of(*put_off)].lane != schedule_.operations[op_of(first)].lane)
      first.waits.push_back(
          {EdgeKind::finish_start, {op_of(*put_off), put_off->layer, put_off->micro_batch, put_off->chunk, 0}});
    if (!trains()) return;
    for_instances([&](std::size_t u, const Instance& i) { place(adamw(u), i); });
    if (cuts_parameters_) return;
    for_instances([&](std::size_t u, const Instance& i) { place(gather(u, ""), i); });
  }
  OpId op_of(const Call& call) const { return schedule_.blocks[call.block].ops[call.first + call.count - 1]; }
  // Deferred weight gradients of the head, and the operations that follow them, are in a sequence of their own.
  std::optional<Call> last_put_off() {
    const auto last =
        std::find_if(order().rbegin(), order().rend(), [](const Call& c) { return c.sequence > kSequence; });
    return last == order().rend() ? std::nullopt : std::optional(*last);
  }

  void norm() {
    const std::string stage = has_stages() ? ".stage" + std::to_string(role_) : "";
    for (const GradientShards& gradients : parameters_.gradients) {
      if (gradients.role != role_) continue;
      const ParameterClass& of = lowered_.classes[gradients.parameter_class];
      const View all = whole(schedule_, gradients.all);
      if (of.sums_over_tp) place(add_single(schedule_, sum_over_tp("tp.all_reduce_norms" + stage, of, all)), {});
      if (of.tied.exists()) place(o_.sum_tied, {});
      place(add_single(schedule_, sum_squares(of.suffix + stage, o_, of, all)), {});
    }
  }

  BlockId adamw(std::size_t u) {
    const ShardedUnit& unit = units_[u];
    OwnShard own{all_of(unit, unit.gradient_shard),
                 parameter_shard(unit),
                 all_of(unit, unit.m),
                 all_of(unit, unit.v),
                 {},
                 decayed_ranges(unit.bucket, parameters_.model.parts)};
    if (unit.master) own.master = all_of(unit, *unit.master);
    return single(update_shard(suffix(u), o_, class_of(unit), std::move(own)));
  }

  Lowered& lowered_;
  Schedule& schedule_;
  const ShardedParameters& parameters_;
  const std::vector<ShardedUnit>& units_;
  const Optimizer& o_;
  const ModelBlocks& blocks_;
  const Scenario& scenario_;
  const bool casts_, cuts_parameters_, keeps_;
  std::size_t role_ = 0;  // program that is being written
  UnitOf unit_of_parameter_, unit_of_gradient_;
  std::map<std::string, BlockId> singles_;
};

}  // namespace

bool shards_units(const Scenario& scenario) {
  return scenario.parallel.shards_gradients() && scenario.parallel.replicas() > 1;
}

bool keeps_whole(const Parallel& parallel) {
  return parallel.shards_parameters() && !parallel.reshard_after_forward && parallel.pipeline_model_parallel_size > 1;
}

ShardedParameters add_sharded_parameters(Schedule& schedule, const Scenario& scenario,
                                         const std::vector<ParameterClass>& classes) {
  return ParameterWriter(schedule, scenario, classes).run();
}

void append_sharded(Lowered& lowered, const ShardedParameters& parameters, const Optimizer& optimizer,
                    const ModelBlocks& blocks, const Scenario& scenario) {
  ShardedWriter(lowered, parameters, optimizer, blocks, scenario).run();
}

TensorId tied_gradient_shards(Schedule& schedule, const ShardedParameters& parameters) {
  std::vector<TensorPlace> places;
  std::int64_t elements = 0;
  // The shards are listed in the order of the stages.
  for (const char* name : {"tied_embedding", "tied_head"})
    for (const ShardedUnit& unit : parameters.units)
      if (unit.name == name) {
        places.push_back(schedule.tensors[unit.gradient_shard].places.front());
        elements = unit.shard;
      }
  return add_placed_tensor(schedule, "shard.gradient.tied", 1, elements, std::move(places));
}

}  // namespace stretto
