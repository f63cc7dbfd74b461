#pragma once
#include <cstdint>
#include <vector>

#include "base/router_score.hpp"

namespace stretto {

// The loss that keeps the experts' loads equal while training (--moe-router-load-balancing-type): of each micro-batch
// of a replica; of each sequence, which does not depend on the layout; of the micro-batches of all replicas, whose
// loads are means over the step's micro-batches so far (Qiu et al., arXiv 2501.11873).
enum class LoadBalancing : std::uint8_t { none, aux_loss, seq_aux_loss, global_aux_loss };
const char* name_of(LoadBalancing balancing);  // "none", "aux_loss", "seq_aux_loss", "global_aux_loss"

// Mixture-of-experts MLPs (Shazeer et al., arXiv 1701.06538; Fedus et al., arXiv 2101.03961). A router gives each token
// a score for every expert; the token goes through those of the `moe_router_topk` highest, and their results are added
// up, each times its probability, which multiplies the activation before fc2. Fields are Megatron-LM's options.
struct Experts {
  std::int64_t num_moe_experts = 0;                // 0: every MLP is dense
  std::int64_t moe_router_topk = 2;                // experts that a token goes through
  std::int64_t moe_ffn_hidden_size = 0;            // width of an expert; 0: ffn_hidden_size
  std::vector<std::int64_t> moe_layer_freq = {1};  // each N-th layer, from the first layer on, or 0 or 1 for each layer
  std::int64_t moe_shared_expert_intermediate_size = 0;  // width of the expert that every token goes through; 0: none
  bool moe_shared_expert_gate = false;                   // whose result is multiplied by sigmoid(gate · x)
  // Softmax is over the chosen logits, or with pre_softmax over all and then not normalised again. Sigmoids are divided
  // by the sum of the chosen ones where these are several.
  RouterScore moe_router_score_function = RouterScore::softmax;
  bool moe_router_pre_softmax = false;
  double moe_router_topk_scaling_factor = 1;  // of probabilities
  // Experts in this number of groups; the best `group_topk` stay, by the sum of their best topk / group_topk scores
  // (DeepSeek-V3, arXiv 2412.19437). 0: no groups.
  std::int64_t moe_router_num_groups = 0, moe_router_group_topk = 0;
  // Each expert's score has a bias when experts are chosen, which grows after a step in which it had few tokens
  // (arXiv 2408.15664).
  bool moe_router_enable_expert_bias = false;
  double moe_router_bias_update_rate = 1e-3;
  LoadBalancing moe_router_load_balancing_type = LoadBalancing::aux_loss;
  double moe_aux_loss_coeff = 0;  // 0: no such loss
  double moe_z_loss_coeff = 0;    // of the mean squared log-sum-exp of the logits (Zoph et al., arXiv 2202.08906)

  bool any() const { return num_moe_experts > 0; }
  bool in_layer(std::int64_t layer) const {
    if (!any()) return false;
    return moe_layer_freq.size() == 1 ? layer % moe_layer_freq[0] == 0
                                      : moe_layer_freq[static_cast<std::size_t>(layer)] != 0;
  }
  bool has_shared() const { return moe_shared_expert_intermediate_size > 0; }
  bool has_balance_loss() const {
    return any() && moe_router_load_balancing_type != LoadBalancing::none && moe_aux_loss_coeff > 0;
  }
  bool balances_replicas() const {
    return has_balance_loss() && moe_router_load_balancing_type == LoadBalancing::global_aux_loss;
  }
  bool operator==(const Experts&) const = default;
};

}  // namespace stretto
