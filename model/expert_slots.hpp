#pragma once
#include "model/scenario.hpp"

namespace stretto {

// Returns whether ep_flash_overlap acts on rows of experts without padding: each pair of ranks that share experts has a
// slot for its rows, with the room that moe_expert_rank_capacity_factor leaves, and ranks exchange slots.
inline bool exchanges_in_slots(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  return scenario.overlap.ep_flash_overlap && scenario.model.experts.any() && parallel.expert_model_parallel_size > 1 &&
         parallel.moe_token_dispatcher_type == TokenDispatcher::alltoall && parallel.moe_expert_capacity_factor == 0 &&
         parallel.moe_expert_rank_capacity_factor > 0 && !scenario.training.low_precision.is_on();
}

}  // namespace stretto
