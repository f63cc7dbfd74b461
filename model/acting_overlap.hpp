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

}  // namespace stretto
