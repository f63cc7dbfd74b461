#include "model/lower/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "model/lower/builder.hpp"
#include "model/lower/optimizer.hpp"
#include "model/lower/sharding.hpp"

namespace stretto {
namespace {

// Returns whether TransformerEngine's linear layers multiply by this parameter; it keeps only these in fp8. Norm
// weights, all near 1, would be rounded to one value, and embeddings are looked up.
// weight decay applies only to matrices
bool is_linear_weight(const Parameter& p) {
  return p.layer >= 0 && p.decayed && p.shard != Shard::none && p.name != "conv.weight";
}

// Adds buckets of the chosen parameters among `parts` from `begin` on; entries are indices into `parts`.
template <class Choose>
void add_buckets(const std::vector<Parameter>& parts, std::size_t begin, Choose is_chosen, std::int64_t bucket_size,
                 std::int64_t unit, std::size_t role, std::size_t c, Lowered& lowered) {
  std::vector<Parameter> chosen;
  std::vector<std::size_t> index;
  for (std::size_t i = begin; i < parts.size(); ++i) {
    if (!is_chosen(parts[i])) continue;
    chosen.push_back(parts[i]);
    index.push_back(i);
  }
  for (Bucket& bucket : make_buckets(chosen, bucket_size, lowered.classes[c].data.size, unit)) {
    for (BucketEntry& entry : bucket.entries) entry.parameter = index[entry.parameter];
    bucket.role = role;
    bucket.parameter_class = c;
    lowered.buckets.push_back(std::move(bucket));
  }
}

// Returns a chunk's parameters, in registration order, as indices into `all`, without the copy of a tied embedding.
std::vector<std::size_t> parameters_of(const std::vector<Parameter>& all, const ModelChunk& chunk) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Parameter& p = all[i];
    const bool is_embedding = p.name == "wte.weight" || p.name == "wpe.weight";
    if (p.layer >= 0   ? p.layer >= chunk.first_layer && p.layer < chunk.end_layer
        : is_embedding ? chunk.has_embedding
                       : chunk.has_head)
      chosen.push_back(i);
  }
  return chosen;
}

}  // namespace

Initial initial_of(const Parameter& p, const Scenario& scenario) {
  Initial initial;
  // Megatron-LM draws exp(a_log) between 1 and 16; here heads begin in the middle, with steps near 1 (dt_bias) and, in
  // Mamba-2, all of their input (skip).
  if (p.name == "a_log" || p.name == "dt_bias" || p.name == "skip") initial.mean = 1;
  if (!p.decayed && p.name.ends_with(".weight")) initial.mean = 1;
  if (p.decayed) initial.deviation = scenario.training.init_method_std;
  if (p.name == "proj.weight" || p.name == "out_proj.weight" || p.name.ends_with("fc2.weight"))
    initial.deviation *= 1.0 / std::sqrt(2.0 * double(scenario.model.num_layers));
  return initial;
}

std::vector<StatePiece> add_model_arrays(StateMap& state, const std::vector<Parameter>& all, const Scenario& scenario) {
  Transformer unpadded = scenario.model;
  unpadded.padded_vocab_size = unpadded.vocab_size;
  const std::vector<Parameter> saved = parameters(unpadded);
  std::map<std::string, std::uint32_t> known;  // known arrays
  std::vector<StatePiece> pieces;
  pieces.reserve(all.size() + 1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Parameter& p = all[i];
    const auto [array, is_new] = known.try_emplace(p.name, static_cast<std::uint32_t>(state.arrays.size()));
    pieces.push_back({array->second, 0, p.layer, 0});
    if (!is_new) continue;
    const Initial initial = initial_of(p, scenario);
    state.arrays.push_back({p.name, saved[i].rows, saved[i].cols, initial.mean, initial.deviation});
    state.arrays.back().cuts = cuts_of(p, scenario.parallel);
  }
  return pieces;
}

bool ties_across_stages(const Scenario& scenario) {
  const StageMap map = stage_map(scenario.parallel);
  return map.first_stage() != map.last_stage() && !scenario.model.untie_embeddings_and_output_weights;
}

ModelParameters add_parameters(Schedule& schedule, const Scenario& scenario, Lowered& lowered) {
  const Parallel& parallel = scenario.parallel;
  const StageMap map = stage_map(parallel);
  const std::vector<ModelChunk> chunks = model_chunks(scenario.model, parallel);
  const std::vector<Parameter> all = parameters(scenario.model);
  const bool is_tied = ties_across_stages(scenario);
  std::int64_t bucket_size = 0;  // 0: one bucket
  const bool is_frozen = scenario.training.frozen_base;
  // As in Megatron-LM, a whole chunk is one bucket when its gather overlaps with the update of other chunks.
  if (scenario.overlap.overlap_grad_reduce && parallel.replicas() > 1 && !is_frozen &&
      !updates_first_chunk_first(scenario))
    bucket_size =
        scenario.overlap.bucket_size > 0 ? scenario.overlap.bucket_size : default_bucket_size(parallel.replicas());
  ModelParameters result;
  StateMap& state = schedule.state;
  state.pieces = add_model_arrays(state, all, scenario);
  std::optional<StatePiece> tied_copy;
  std::vector<std::size_t> whole;  // [parameter in `parts`] index into `all`
  std::vector<bool> first_chunk;   // [bucket]
  const bool gathers_in_fp8 = gathers_fp8(scenario);
  for (std::int64_t stage = 0; stage < map.stages; ++stage)
    for (std::int64_t number = map.chunks; number-- > 0;) {
      const std::int64_t piece = map.piece_of(stage, number);
      const std::size_t begin = result.parts.size();
      const ModelChunk& chunk = chunks[static_cast<std::size_t>(piece)];
      for (const std::size_t i : parameters_of(all, chunk)) {
        result.parts.push_back(part_of(all[i], parallel));
        whole.push_back(i);
      }
      if (is_tied && chunk.has_head) {
        result.parts.push_back(part_of(all.front(), parallel));
        result.parts.back().name = kTiedHeadWeight;
        whole.push_back(0);
      }
      for (std::size_t c = 0; c < lowered.classes.size(); ++c)
        for (const bool in_fp8 : {true, false}) {
          // Experts that only one rank has are not gathered.
          const bool gathers = gathers_in_fp8 && lowered.classes[c].shards > 1;
          const auto is_chosen = [&](const Parameter& p) {
            return class_of(lowered.classes, p) == c && (gathers && is_linear_weight(p)) == in_fp8;
          };
          add_buckets(result.parts, begin, is_chosen, piece == 0 ? bucket_size : 0, in_fp8 ? kScaleBlock : 1,
                      static_cast<std::size_t>(stage), c, lowered);
          result.in_fp8.resize(lowered.buckets.size(), in_fp8);
        }
      for (std::size_t b = first_chunk.size(); b < lowered.buckets.size(); ++b) first_chunk.push_back(number == 0);
    }

  struct Family {
    const Parameter* shape = nullptr;
    std::vector<TensorPlace> parameter, gradient;
  };
  std::map<std::string, Family> families;
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const Bucket& bucket = lowered.buckets[b];
    BucketOps ops;
    ops.role = bucket.role;
    ops.first_chunk = first_chunk[b];
    ops.parameter =
        add_storage(schedule, "parameters" + suffix, schedule.compute_dtype, BufferKind::parameter, bucket.elements);
    if (!is_frozen)
      ops.gradient = add_storage(schedule, "gradients" + suffix, accumulation_of(schedule.compute_dtype),
                                 BufferKind::gradient, bucket.elements);
    lowered.bucket_ops.push_back(ops);
    const ParameterClass& of = lowered.classes[bucket.parameter_class];
    const std::int64_t shard = bucket.elements / of.shards;
    state.buckets.push_back({bucket.role, of.shards > 1 ? of.shard() * Expr(shard) : Expr(0), shard});
    StateBucket& kept = state.buckets.back();
    kept.window(StatePart::parameters) = {ops.parameter, 0};
    if (!is_frozen) kept.window(StatePart::gradients) = {ops.gradient, 0};
    for (const BucketEntry& entry : bucket.entries) {
      const Parameter& p = result.parts[entry.parameter];
      StatePiece& piece =
          p.name == kTiedHeadWeight ? tied_copy.emplace(state.pieces.front()) : state.pieces[whole[entry.parameter]];
      piece.bucket = static_cast<std::uint32_t>(b);
      piece.offset = entry.offset;
      Family& family = families[p.name];
      family.shape = &p;
      // No operation reads the place of a layer that does not have it.
      const std::size_t count = p.layer < 0 ? 1 : static_cast<std::size_t>(scenario.model.num_layers);
      family.parameter.resize(count, {ops.parameter, entry.offset});
      family.gradient.resize(count, {ops.gradient, entry.offset});
      family.parameter[p.layer < 0 ? 0 : p.layer] = {ops.parameter, entry.offset};
      family.gradient[p.layer < 0 ? 0 : p.layer] = {ops.gradient, entry.offset};
    }
  }
  if (tied_copy) state.pieces.insert(state.pieces.begin() + 1, *tied_copy);
  for (auto& [name, family] : families) {
    result.tensors.parameter[name] =
        add_placed_tensor(schedule, name, family.shape->rows, family.shape->cols, std::move(family.parameter));
    if (is_frozen) continue;
    result.tensors.gradient[name] =
        add_placed_tensor(schedule, "grad." + name, family.shape->rows, family.shape->cols, std::move(family.gradient));
  }
  return result;
}

std::vector<BucketTensors> add_bucket_tensors(Schedule& schedule, const Scenario& scenario, const Lowered& lowered,
                                              const ModelParameters& parameters) {
  std::vector<BucketTensors> result;
  const auto class_of_bucket = [&](const Bucket& bucket) -> const ParameterClass& {
    return lowered.classes[bucket.parameter_class];
  };
  const auto in_parts = [&](const Bucket& bucket) { return sums_in_fp32(scenario, class_of_bucket(bucket)); };
  std::map<std::size_t, StorageId> parts;  // [role]
  for (const Bucket& bucket : lowered.buckets)
    if (in_parts(bucket)) {
      if (!parts.contains(bucket.role))
        parts[bucket.role] = add_storage(schedule, "gradient_parts.role" + std::to_string(bucket.role), Dtype::bf16,
                                         BufferKind::workspace, 0);
      Storage& storage = schedule.storages[parts[bucket.role]];
      storage.elements = std::max(storage.elements, bucket.elements);
    }
  for (std::size_t b = 0; b < lowered.buckets.size(); ++b) {
    const std::string suffix = ".b" + std::to_string(b);
    const Bucket& bucket = lowered.buckets[b];
    const std::int64_t elements = bucket.elements, shards = class_of_bucket(bucket).shards, shard = elements / shards;
    BucketTensors t;
    t.parameter =
        add_placed_tensor(schedule, "bucket.parameter" + suffix, 1, elements, {{lowered.bucket_ops[b].parameter, 0}});
    t.gradient =
        add_placed_tensor(schedule, "bucket.gradient" + suffix, 1, elements, {{lowered.bucket_ops[b].gradient, 0}});
    if (class_of_bucket(bucket).reduces() && !scenario.overlap.grad_reduce_in_fp32)
      t.low = with_role(
          schedule, TensorRole::gradients_to_reduce,
          add_tensor(schedule, "bucket.gradient_bf16" + suffix, Dtype::bf16, BufferKind::workspace, 1, elements));
    if (in_parts(bucket))
      t.parts =
          add_placed_tensor(schedule, "bucket.gradient_parts" + suffix, 1, elements, {{parts.at(bucket.role), 0}});
    if (parameters.in_fp8[b]) {
      with_role(schedule, TensorRole::fp8_gathered_parameters, t.parameter);
      const std::int64_t packed = ScaledCast::packed_bytes(shard);
      t.fp8_shard = add_tensor(schedule, "bucket.fp8_shard" + suffix, Dtype::e4m3, BufferKind::workspace, 1, packed);
      t.fp8 = add_tensor(schedule, "bucket.fp8" + suffix, Dtype::e4m3, BufferKind::workspace, 1, shards * packed);
    }
    const Dtype kept = accumulation_of(schedule.compute_dtype);
    const OptimizerPrecision& types = scenario.training.optimizer_precision;
    t.m = add_tensor(schedule, "adam.m" + suffix, dtype_of(types.exp_avg_dtype, kept), BufferKind::optimizer_state, 1,
                     shard);
    t.v = add_tensor(schedule, "adam.v" + suffix, dtype_of(types.exp_avg_sq_dtype, kept), BufferKind::optimizer_state,
                     1, shard);
    if (kept != schedule.compute_dtype)
      t.master = with_role(
          schedule, TensorRole::master_parameters,
          add_tensor(schedule, "adam.p" + suffix, master_type(scenario), BufferKind::optimizer_state, 1, shard));
    StateBucket& kept_state = schedule.state.buckets[b];
    const auto keep = [&](StatePart part, TensorId tensor) {
      kept_state.window(part) = {schedule.tensors[tensor].places.front().storage, kept_state.own_begin};
    };
    keep(StatePart::adam_m, t.m);
    keep(StatePart::adam_v, t.v);
    if (t.master) keep(StatePart::master, *t.master);
    result.push_back(t);
  }
  return result;
}

std::vector<AdamW::Range> decayed_ranges(const Bucket& bucket, const std::vector<Parameter>& parts) {
  std::vector<AdamW::Range> ranges;
  for (const BucketEntry& entry : bucket.entries)
    if (parts[entry.parameter].decayed)
      ranges.push_back({entry.offset, entry.offset + parts[entry.parameter].elements()});
  return ranges;
}

}  // namespace stretto
