// The router of ExpertLayers: scores, the balance loss, and their gradients.
#include <utility>
#include <vector>

#include "model/lower/expert_layers.hpp"

namespace stretto {

Route ExpertLayers::route(Pass pass) const {
  return {.pass = pass,
          .rows = w_.residual_rows(),
          .experts = experts_,
          .topk = topk_,
          .score = model_.moe_router_score_function,
          .pre_softmax = model_.moe_router_pre_softmax,
          .scaling = model_.moe_router_topk_scaling_factor,
          .groups = model_.moe_router_num_groups,
          .group_topk = model_.moe_router_group_topk,
          // The mean over the tokens of the global batch.
          .z_scale = pass == Pass::dgrad ? model_.moe_z_loss_coeff * shape_.loss_scale : 0,
          .biased = model_.moe_router_enable_expert_bias};
}

// Switch Transformer's loss coeff · E/(topk·n²) · Σ_e (Σ_t p[t,e]) · count[e] of the n tokens of a micro-batch, of each
// sequence, or of a micro-batch in all replicas; the mean of them all counts. Megatron-LM's global_aux_loss has this
// loss divided by the number of replicas: each divides by n, and gradients are averaged once more.
BalanceLoss ExpertLayers::balance(Pass pass) const {
  const bool by_sequence = model_.moe_router_load_balancing_type == LoadBalancing::seq_aux_loss;
  const double of_micro_batch = double(shape_.micro_batch_size * shape_.model.seq_length),
               of_replicas = 1 / (shape_.loss_scale * double(shape_.micro_batches)),
               n = by_sequence                  ? double(shape_.model.seq_length)
                   : model_.balances_replicas() ? of_replicas
                                                : of_micro_batch;
  return {.pass = pass,
          .rows = w_.residual_rows(),
          .experts = experts_,
          .topk = topk_,
          .score = model_.moe_router_score_function,
          .sequences = by_sequence ? shape_.micro_batch_size : 1,
          .seq = shape_.model.seq_length,
          .first_row = cuts_tokens() ? shape_.tp.place * Expr(w_.residual_rows()) : Expr(0),
          .parts = shape_.parts(),
          .scale = pass == Pass::dgrad
                       ? model_.moe_aux_loss_coeff * double(experts_) / (double(topk_) * n) * shape_.loss_scale
                       : 0};
}

void ExpertLayers::share_counts(Phase phase) {
  const View counts = of_layer(counts_);
  if (shape_.sharing_tokens.exists())
    w_.communicate("router.count.all_reduce", phase, shape_.sharing_tokens, CollectiveKind::all_reduce,
                   counts.rows * counts.cols, {accumulate(counts)});
}

// Adds to the gradient of x.
void ExpertLayers::router_backward(const View& x, const View& dx) {
  const BlockWriter::Within router(w_, Module::router);
  View d_probabilities = w_.work(d_all_probabilities_);
  const View d_weights = w_.work(exchanges() ? d_way_.sent_weights : d_weights_);
  permute_rows("experts.permute_weights.dgrad", Phase::dgrad, Pass::backward, true, d_probabilities, d_weights);
  if (gathers()) {
    const View part = w_.work(d_probabilities_);
    w_.communicate("router.probabilities.reduce_scatter", Phase::dgrad, gathering(), CollectiveKind::reduce_scatter,
                   d_probabilities.rows * d_probabilities.cols, {read(d_probabilities), write(part)});
    d_probabilities = part;
  }
  const View logits = of_layer(logits_), d_logits = w_.work(d_logits_), rounded = w_.work(d_router_);
  w_.op("router.route.dgrad", Phase::dgrad, route(Pass::dgrad),
        {read(logits), read(of_layer(indices_)), read(d_probabilities), write(d_logits)});
  // A tally is of the backward passes, which recomputation does not repeat.
  if (model_.balances_replicas()) {
    share_counts(Phase::dgrad);
    w_.op("router.mean_counts", Phase::dgrad, MeanCounts{experts_},
          {accumulate(of_layer(counts_)), accumulate(w_.gradient("router.tally", Coord::layer))});
  }
  if (model_.has_balance_loss())
    w_.op("router.count.dgrad", Phase::dgrad, balance(Pass::dgrad),
          {read(logits), read(of_layer(counts_)), accumulate(d_logits)});
  // Loads are counted in the backward pass, which recomputation does not repeat.
  if (model_.moe_router_enable_expert_bias)
    add_to_gradient("router.count_loads", CountLoads{x.rows, topk_, experts_}, {read(of_layer(indices_))},
                    "router.bias");
  if (d_router_ != d_logits_)
    w_.op("router.round_dgrad", Phase::dgrad, Cast{d_logits.rows * d_logits.cols}, {read(d_logits), write(rounded)});
  w_.op("router.dgrad", Phase::dgrad, Gemm{x.rows, hidden_, experts_, false, false, false},
        {read(rounded), read(weight("router.weight")), accumulate(dx)});
  add_to_gradient("router.wgrad", Gemm{experts_, hidden_, x.rows, true, false, false}, {read(rounded), read(x)},
                  "router.weight");
}

}  // namespace stretto
