#pragma once
#include <algorithm>
#include <cstdint>

#include "model/scenario.hpp"

namespace stretto {

// Returns the number of micro-batches, the first of a step, whose weight gradient of the head is put off to its end
// (defer_embedding_wgrad_compute).
inline std::int64_t deferred_head_gradients(const Scenario& scenario) {
  const Overlap& overlap = scenario.overlap;
  if (!overlap.defer_embedding_wgrad_compute || scenario.parallel.pipeline_model_parallel_size == 1 ||
      scenario.training.frozen_base || is_zero_bubble(scenario.parallel.pipeline_schedule))
    return 0;
  // A step that is built in part (predict/few_micro_batches.hpp) says by a negative limit how many it puts off.
  if (overlap.wgrad_deferral_limit < 0) return -overlap.wgrad_deferral_limit;
  const std::int64_t all = scenario.num_microbatches();
  return overlap.wgrad_deferral_limit > 0 ? std::min(overlap.wgrad_deferral_limit, all) : all;
}

}  // namespace stretto
