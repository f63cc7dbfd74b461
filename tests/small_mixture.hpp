#pragma once
// Small models with experts, for tests of executors.
#include <string>

#include "tests/training.hpp"

namespace stretto::testing {

// How a model routes and what its attention is.
enum class Mixture { softmax, sigmoid, latent };

// Eight experts, which 1, 2 and 4 ranks may share; two or three of them for a token.
inline Scenario small_mixture(const Layout& layout, std::int64_t ep, Mixture mixture, const std::string& mode = "plain",
                              const std::string& precision = "fp32", std::int64_t global_batch = 4) {
  Scenario scenario = layout_scenario(layout, mode, true, precision, 1, global_batch);
  Transformer& model = scenario.model;
  Experts& experts = model.experts;
  if (layout.pp == 1) model.num_layers = 2;
  experts.num_moe_experts = 8;
  experts.moe_ffn_hidden_size = 12;
  experts.moe_z_loss_coeff = 0.01;
  experts.moe_aux_loss_coeff = 0.1;
  experts.moe_router_load_balancing_type = LoadBalancing::seq_aux_loss;
  model.qk_layernorm = true;
  if (mixture == Mixture::sigmoid) {
    experts.moe_router_topk = 3;
    experts.moe_layer_freq = {2};
    experts.moe_router_score_function = RouterScore::sigmoid;
    experts.moe_router_topk_scaling_factor = 2.5;
    experts.moe_router_enable_expert_bias = true;
    experts.moe_router_bias_update_rate = 0.25;
    experts.moe_shared_expert_intermediate_size = 6;
    experts.moe_shared_expert_gate = true;
  }
  if (mixture == Mixture::latent) {
    model.num_query_groups = model.num_attention_heads;
    model.latent = {.multi_latent_attention = true,
                    .q_lora_rank = 5,
                    .kv_lora_rank = 4,
                    .qk_head_dim = 3,
                    .qk_pos_emb_head_dim = 4,
                    .v_head_dim = 5};
    model.latent.yarn = {.factor = 4, .mscale = 0.7, .mscale_all_dim = 0.9};
    experts.moe_layer_freq = {2};
    experts.moe_router_num_groups = 4;
    experts.moe_router_group_topk = 2;
    experts.moe_router_pre_softmax = true;
  }
  scenario.parallel.expert_model_parallel_size = ep;
  scenario.parallel.expert_tensor_parallel_size = 1;
  return scenario;
}

// Padding with room for all tokens of a rank at each expert, times `share`.
inline void pad_experts(Scenario& scenario, double share = 1) {
  const Experts& experts = scenario.model.experts;
  scenario.parallel.moe_pad_expert_input_to_capacity = true;
  scenario.parallel.moe_expert_capacity_factor =
      share * double(experts.num_moe_experts) / double(experts.moe_router_topk);
}

}  // namespace stretto::testing
