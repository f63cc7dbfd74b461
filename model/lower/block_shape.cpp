#include <algorithm>

#include "model/deferral.hpp"
#include "model/expert_slots.hpp"
#include "model/lower/blocks.hpp"
#include "model/lower/parameters.hpp"

namespace stretto {
namespace {

// Adds the kinds of layers; kinds of one LayerSpec follow the order of their kinds of context parallelism.
void add_kinds(BlockShape& shape, const Parallel& parallel) {
  const std::vector<CpCommType> types = parallel.cp_comm_types();
  std::vector<LayerKind> of_layer;
  for (std::int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const auto type = std::find(types.begin(), types.end(), parallel.cp_comm_type_of(layer));
    of_layer.push_back({shape.model.layer(layer),
                        parallel.context_parallel_size > 1 ? static_cast<std::size_t>(type - types.begin()) : 0,
                        shape.in_codes[static_cast<std::size_t>(layer)]});
  }
  shape.kinds = of_layer;
  std::sort(shape.kinds.begin(), shape.kinds.end());
  shape.kinds.erase(std::unique(shape.kinds.begin(), shape.kinds.end()), shape.kinds.end());
  for (const LayerKind& kind : of_layer)
    shape.kind_of_layer.push_back(
        static_cast<std::size_t>(std::lower_bound(shape.kinds.begin(), shape.kinds.end(), kind) - shape.kinds.begin()));
}

Fusions fusions_of(const Scenario& scenario, const BlockShape& shape) {
  const Training& training = scenario.training;
  Fusions fusions;
  fusions.norm_gradient = training.norm_gradient_fusion && !shape.frozen_base;
  // Codes are made of a product's result, and no bias gradient is a sum of codes.
  if (shape.low.is_on()) return fusions;
  fusions.gelu = training.gelu_fusion && !scenario.model.swiglu;
  fusions.bias_gradient = training.bias_gradient_fusion && scenario.model.add_bias_linear;
  fusions.gelu_bias_gradient = training.gelu_bias_gradient_fusion && fusions.gelu && scenario.model.add_bias_linear &&
                               !shape.frozen_base && !scenario.overlap.tp_comm_overlap;
  fusions.residual = training.residual_fusion && scenario.model.hidden_dropout == 0 && !shape.tp.exists();
  return fusions;
}

ExpertCut experts_of(const Scenario& scenario, const BlockShape& shape) {
  const Parallel& parallel = scenario.parallel;
  ExpertCut experts{.ranks = shape.ep.exists() ? shape.ep.size : 1,
                    .local = scenario.model.experts.num_moe_experts / parallel.expert_model_parallel_size,
                    .width_ranks = parallel.expert_tp(),
                    .exchanges = shape.ep.exists(),
                    .capacity = parallel.moe_expert_capacity_factor,
                    .rank_capacity = parallel.moe_expert_rank_capacity_factor,
                    .in_slots = exchanges_in_slots(scenario),
                    .place = shape.ep.place,
                    .sums_balance = shape.sharing_tokens.exists(),
                    .shared_is_concurrent = shape.shared_expert != 0 && shape.ep.exists()};
  if (parallel.expert_model_parallel_size > 1) experts.first = Expr(Coord::ep) * Expr(experts.local);
  experts.gathers_over_tensor = !shape.expert_tokens.exists() && shape.sequence_parallel && experts.width_ranks > 1;
  experts.gathering = shape.expert_tokens.exists()  ? shape.expert_tokens.size
                      : experts.gathers_over_tensor ? shape.tp.size
                                                    : 1;
  experts.weights_last = shape.ep.exists() && (scenario.overlap.overlap_dispatch_backward_with_experts_wgrad ||
                                               experts.in_slots || cuts_exchanges(scenario));
  return experts;
}

}  // namespace

BlockShape shape_of(const Scenario& scenario, const Groups& groups) {
  const Parallel& parallel = scenario.parallel;
  BlockShape shape;
  shape.model = scenario.model;
  shape.data = {scenario.training.micro_batch_size, scenario.training.reset_attention_mask,
                scenario.document_tokens_of_slowest(), scenario.training.reset_position_ids,
                scenario.training.eod_mask_loss};
  shape.micro_batches = scenario.num_microbatches();
  shape.cp = groups.cp;
  shape.precision = scenario.training.low_precision;
  shape.low = rules_of(shape.precision, scenario.compute_capability);
  shape.amax = groups.amax;
  for (std::int64_t layer = 0; layer < shape.model.num_layers; ++layer)
    shape.in_codes.push_back(shape.precision.acts_on(layer, shape.model.num_layers));
  add_kinds(shape, parallel);
  shape.loss_scale = 1.0 / (double(parallel.replicas()) * double(shape.micro_batches) * double(shape.tokens()));
  shape.recompute = scenario.training.recompute;
  shape.attention_backend = scenario.training.attention_backend;
  shape.frozen_base = scenario.training.frozen_base;
  shape.codes_in_passes = scenario.parallel.shards_parameters() && scenario.parallel.replicas() > 1;
  shape.tp = groups.tp;
  shape.sharing_tokens = groups.sharing_tokens;
  shape.shared_expert = groups.shared_expert;
  shape.ep = groups.ep;
  shape.ep_counts = groups.ep_counts;
  shape.expert_tokens = groups.expert_tokens;
  shape.sequence_parallel = parallel.sequence_parallel && shape.tp.exists();
  shape.fusions = fusions_of(scenario, shape);
  shape.experts = experts_of(scenario, shape);
  shape.scatters_messages =
      parallel.scatter_gather_tensors_in_pipeline && shape.tp.exists() && !parallel.sequence_parallel;
  shape.deferred = deferred_head_gradients(scenario);
  shape.pairs_passes = overlaps_experts(scenario);
  shape.attention_early = scenario.overlap.ep_overlap_early_attn_memory_release;
  shape.weights_in_units = is_zero_bubble(parallel.pipeline_schedule);
  shape.weights_apart = shape.weights_in_units || delays_weights(scenario);
  shape.head_weight = ties_across_stages(scenario) ? kTiedHeadWeight : scenario.model.head_weight();
  return shape;
}

}  // namespace stretto
