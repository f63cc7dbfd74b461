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

}  // namespace

BlockShape shape_of(const Scenario& scenario, const Groups& groups) {
  const Parallel& parallel = scenario.parallel;
  BlockShape shape;
  shape.model = scenario.model;
  shape.micro_batch_size = scenario.training.micro_batch_size;
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
  shape.masks_documents = scenario.training.reset_attention_mask;
  shape.document_tokens = scenario.document_tokens_of_slowest();
  shape.resets_positions = scenario.training.reset_position_ids;
  shape.masks_ends = scenario.training.eod_mask_loss;
  shape.frozen_base = scenario.training.frozen_base;
  shape.codes_in_passes = scenario.parallel.shards_parameters() && scenario.parallel.replicas() > 1;
  // Codes are made of a product's result, and no bias gradient is a sum of codes.
  const bool fuses = !shape.low.is_on();
  shape.gelu_fusion = scenario.training.gelu_fusion && !scenario.model.swiglu && fuses;
  shape.bias_gradient_fusion = scenario.training.bias_gradient_fusion && scenario.model.add_bias_linear && fuses;
  shape.gelu_bias_gradient_fusion = scenario.training.gelu_bias_gradient_fusion && shape.gelu_fusion &&
                                    scenario.model.add_bias_linear && !shape.frozen_base &&
                                    !scenario.overlap.tp_comm_overlap;
  shape.tp = groups.tp;
  shape.sharing_tokens = groups.sharing_tokens;
  shape.shared_expert = groups.shared_expert;
  shape.expert_tp = parallel.expert_tp();
  shape.ep = groups.ep;
  shape.ep_counts = groups.ep_counts;
  shape.expert_tokens = groups.expert_tokens;
  shape.local_experts = scenario.model.experts.num_moe_experts / parallel.expert_model_parallel_size;
  if (parallel.expert_model_parallel_size > 1) shape.first_expert = Expr(Coord::ep) * Expr(shape.local_experts);
  shape.rank_capacity = parallel.moe_expert_rank_capacity_factor;
  shape.expert_capacity = parallel.moe_expert_capacity_factor;
  shape.residual_fusion =
      scenario.training.residual_fusion && scenario.model.hidden_dropout == 0 && !shape.tp.exists() && fuses;
  shape.norm_gradient_fusion = scenario.training.norm_gradient_fusion;
  shape.sequence_parallel = parallel.sequence_parallel && shape.tp.exists();
  shape.scatters_messages =
      parallel.scatter_gather_tensors_in_pipeline && shape.tp.exists() && !parallel.sequence_parallel;
  shape.deferred = deferred_head_gradients(scenario);
  shape.pairs_passes = overlaps_experts(scenario);
  shape.attention_early = scenario.overlap.ep_overlap_early_attn_memory_release;
  shape.weights_in_units = is_zero_bubble(parallel.pipeline_schedule);
  shape.weights_apart = shape.weights_in_units || delays_weights(scenario);
  shape.expert_slots = exchanges_in_slots(scenario);
  shape.experts_weights_last = groups.ep.exists() && (scenario.overlap.overlap_dispatch_backward_with_experts_wgrad ||
                                                      shape.expert_slots || cuts_exchanges(scenario));
  shape.head_weight = ties_across_stages(scenario) ? kTiedHeadWeight : scenario.model.head_weight();
  return shape;
}

}  // namespace stretto
