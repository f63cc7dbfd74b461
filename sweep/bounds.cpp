#include "sweep/bounds.hpp"

#include <algorithm>
#include <vector>

#include "model/acting_overlap.hpp"
#include "model/layout.hpp"

namespace stretto::sweep {
namespace {

// The least that profiles give an element: weights and gradients in bf16, two moments and a master that takes two
// bytes more than the weight (store_param_remainders of Megatron-LM's precision-aware optimizer, moments in fp8).
constexpr double kWeightBytes = 2, kGradientBytes = 2, kOptimizerBytes = 4;
constexpr double kCodeBytes = 1;  // of a weight in fp8

// Share of the closed form that counts as certain. The closed form was 0.4 % above the plan of one random layout of 70
// (72 layers, tp 1, pp 8); it is not known yet by which buffers.
constexpr double kCertain = 0.98;

struct ChunkTimes {
  Picoseconds forward = 0, backward = 0;
  Picoseconds drain = 0;  // from the chunk's gradient to that of its input; weight gradients may come later
};

ChunkTimes chunk_times(const ModelChunk& chunk, const Transformer& model, const TimeFamily& family) {
  ChunkTimes times;
  Picoseconds hidden_forward = 0, hidden_backward = 0, wgrad = 0;
  for (std::int64_t l = chunk.first_layer; l < chunk.end_layer; ++l) {
    const LayerTimes& layer = family.layers.at(model.layer(l));
    times.forward += layer.forward_in_row;
    times.backward += layer.backward_in_row;
    hidden_forward = std::max(hidden_forward, layer.forward_in_row - layer.forward_span);
    hidden_backward = std::max(hidden_backward, layer.backward_in_row - layer.backward_span);
    wgrad = std::max(wgrad, layer.wgrad);
  }
  times.forward -= hidden_forward;
  times.backward -= hidden_backward;
  times.drain = std::max<Picoseconds>(0, times.backward - wgrad);
  if (chunk.has_embedding) times.forward += family.embedding_forward, times.backward += family.embedding_backward;
  if (chunk.has_head) times.backward += family.head;
  return times;
}

// Returns the number of passes of the stage's chunks that come before its first backward pass, that pass's own included
// (model/order/pipeline_order.cpp).
std::int64_t passes_at_once(const Scenario& scenario, std::int64_t stage) {
  const Parallel& parallel = scenario.parallel;
  if (lies_in_v(parallel.pipeline_schedule)) return 1;
  const std::int64_t after = parallel.pipeline_model_parallel_size - 1 - stage;
  const std::int64_t chunks = parallel.virtual_pipeline_model_parallel_size;
  const std::int64_t group = parallel.microbatch_group_size_per_vp_stage > 0
                                 ? parallel.microbatch_group_size_per_vp_stage
                                 : parallel.pipeline_model_parallel_size;
  const std::int64_t ahead = chunks == 1 ? after : 2 * after + (chunks - 1) * group;
  return std::min(ahead + 1, chunks * scenario.num_microbatches());
}

// Returns Σ over the stage's layers of `state`, and over the layers of `passes` passes of `activations`.
double stage_bytes(const Scenario& scenario, const StageMap& map, const std::vector<ModelChunk>& chunks,
                   std::int64_t stage, const StageBytes& bytes) {
  const std::int64_t group = scenario.parallel.microbatch_group_size_per_vp_stage > 0
                                 ? scenario.parallel.microbatch_group_size_per_vp_stage
                                 : map.stages;
  const std::int64_t micro_batches = scenario.num_microbatches();
  std::int64_t left = passes_at_once(scenario, stage);
  std::vector<std::int64_t> passes(static_cast<std::size_t>(map.chunks), 0);  // [chunk]
  for (std::int64_t begin = 0; begin < micro_batches && left > 0; begin += group)
    for (std::int64_t chunk = 0; chunk < map.chunks && left > 0; ++chunk) {
      const std::int64_t taken = std::min({left, group, micro_batches - begin});
      passes[static_cast<std::size_t>(chunk)] += taken;
      left -= taken;
    }
  double sum = bytes.constant;
  for (std::int64_t chunk = 0; chunk < map.chunks; ++chunk) {
    const ModelChunk& piece = chunks[static_cast<std::size_t>(map.piece_of(stage, chunk))];
    for (std::int64_t l = piece.first_layer; l < piece.end_layer; ++l) {
      const LayerSpec kind = scenario.model.layer(l);
      sum += bytes.state.at(kind) + double(passes[static_cast<std::size_t>(chunk)]) * bytes.activations.at(kind);
    }
  }
  return sum;
}

}  // namespace

double least_step_ms(const Scenario& scenario, const TimeFamily& family) {
  const StageMap map = stage_map(scenario.parallel);
  const std::vector<ModelChunk> chunks = model_chunks(scenario.model, scenario.parallel);
  const bool waits_for_norm = scenario.training.clip_grad > 0 && !scenario.training.frozen_base;
  const bool drains = !is_zero_bubble(scenario.parallel.pipeline_schedule) && !overlaps_experts(scenario);
  Picoseconds fill = 0, drain = 0, most = 0;
  for (std::int64_t stage = 0; stage < map.stages; ++stage) {
    Picoseconds each = 0;
    ChunkTimes first;
    for (std::int64_t chunk = 0; chunk < map.chunks; ++chunk) {
      const ChunkTimes times =
          chunk_times(chunks[static_cast<std::size_t>(map.piece_of(stage, chunk))], scenario.model, family);
      each += times.forward + times.backward;
      if (chunk == 0) first = times;
    }
    const Picoseconds own = scenario.num_microbatches() * each;
    // The stage's own last weight gradients may come while the gradient goes back.
    const Picoseconds later = first.backward - first.drain;
    // Deferred weight gradients of the head come while the pipeline drains, too.
    const bool ends_before_drain =
        drains && !(scenario.overlap.defer_embedding_wgrad_compute && stage == map.last_stage());
    const Picoseconds after = ends_before_drain ? std::max<Picoseconds>(0, drain - later) : 0;
    most = std::max(most, waits_for_norm ? fill + own + after : own);
    fill += first.forward;
    drain += first.drain;
  }
  return to_ms(most);
}

double least_bytes(const Scenario& scenario, const MemoryFamily& family) {
  const StageMap map = stage_map(scenario.parallel);
  const std::vector<ModelChunk> chunks = model_chunks(scenario.model, scenario.parallel);
  double most = stage_bytes(scenario, map, chunks, map.last_stage(), family.last);
  if (map.first_stage() != map.last_stage())
    most = std::max(most, stage_bytes(scenario, map, chunks, map.first_stage(), family.first));
  return kCertain * most + double(family.reserved);
}

ModelElements elements_of(const Transformer& model) {
  ModelElements elements;
  for (const Parameter& parameter : parameters(model))
    (parameter.experts > 0 ? elements.of_experts : elements.dense) += double(parameter.elements());
  return elements;
}

double least_state_bytes(const Scenario& scenario, const ModelElements& elements) {
  const Parallel& parallel = scenario.parallel;
  const bool is_trained = !scenario.training.frozen_base;
  const auto bytes_of = [&](double count, double ranks_apart, double shards) {
    const double own = count / (ranks_apart * double(parallel.pipeline_model_parallel_size));
    const double weight = scenario.overlap.fp8_param_gather ? kCodeBytes : kWeightBytes;
    return own * (weight / (parallel.shards_parameters() ? shards : 1) +
                  (is_trained ? kGradientBytes / (parallel.shards_gradients() ? shards : 1) : 0) +
                  (is_trained ? kOptimizerBytes / (parallel.shards_optimizer() ? shards : 1) : 0));
  };
  return bytes_of(elements.dense, double(parallel.tensor_model_parallel_size), double(parallel.shards())) +
         bytes_of(elements.of_experts, double(parallel.expert_model_parallel_size * parallel.expert_tp()),
                  double(std::max<std::int64_t>(1, parallel.expert_dp())));
}

}  // namespace stretto::sweep
