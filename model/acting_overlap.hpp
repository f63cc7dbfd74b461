#pragma once
#include "model/scenario.hpp"

namespace stretto {

// Conditions under which knobs of experts act, for all code that decides by them.

// Returns whether overlap_moe_expert_parallel_comm acts: ranks share experts.
inline bool overlaps_experts(const Scenario& scenario) {
  return scenario.overlap.overlap_moe_expert_parallel_comm && scenario.model.experts.any() &&
         scenario.parallel.expert_model_parallel_size > 1;
}
// Returns whether moe_shared_expert_overlap acts.
inline bool overlaps_shared_expert(const Scenario& scenario) {
  return scenario.overlap.moe_shared_expert_overlap && scenario.model.experts.has_shared() &&
         scenario.parallel.expert_model_parallel_size > 1 && !overlaps_experts(scenario);
}
// Returns whether delay_wgrad_compute acts.
inline bool delays_weights(const Scenario& scenario) {
  return overlaps_experts(scenario) && scenario.overlap.delay_wgrad_compute && !scenario.training.frozen_base;
}
// Returns whether ep_flash_overlap acts: ranks share experts, and exchange equally many rows.
inline bool cuts_exchanges(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  return scenario.overlap.ep_flash_overlap && scenario.model.experts.any() && parallel.expert_model_parallel_size > 1 &&
         parallel.moe_token_dispatcher_type == TokenDispatcher::alltoall && parallel.moe_expert_capacity_factor > 0;
}

}  // namespace stretto
