#include "predict/few_micro_batches.hpp"

#include <algorithm>
#include <utility>

#include "sim/engine.hpp"

namespace stretto::predict {

Scenario with_micro_batches(Scenario scenario, std::int64_t count) {
  scenario.training.global_batch_size =
      count * scenario.training.micro_batch_size * scenario.parallel.data_parallel_size;
  return scenario;
}

std::int64_t round_of(const Scenario& scenario) {
  const Parallel& parallel = scenario.parallel;
  if (parallel.virtual_pipeline_model_parallel_size == 1 || lies_in_v(parallel.pipeline_schedule)) return 1;
  return parallel.microbatch_group_size_per_vp_stage > 0 ? parallel.microbatch_group_size_per_vp_stage
                                                         : parallel.pipeline_model_parallel_size;
}

std::vector<std::int64_t> telling_micro_batches(const Scenario& scenario) {
  const std::int64_t all = scenario.num_microbatches(), round = round_of(scenario);
  // Chunks in a V have orders that are no repetition of rounds for every number of micro-batches.
  if (lies_in_v(scenario.parallel.pipeline_schedule)) return {all};
  // The pipeline is full after as many micro-batches as it has stages, or two rounds; two rounds repeat each other.
  const std::int64_t stages = scenario.parallel.pipeline_model_parallel_size;
  const std::int64_t least = round == 1 ? stages + 4 : 4 * round;
  std::vector<std::int64_t> counts;
  for (const std::int64_t few : {least, 2 * least})
    if (const std::int64_t count = few + (all - few) % round; count < all && few < all) counts.push_back(count);
  counts.push_back(all);
  return counts;
}

std::optional<Picoseconds> told_step(const Scenario& scenario, const Schedule& schedule, BoundStep step,
                                     std::int64_t micro_batches, const sim::Costs& costs, sim::SimOptions options) {
  const std::int64_t more = scenario.num_microbatches() - micro_batches;
  options.round_micro_batches = more > 0 ? round_of(scenario) : 0;
  const sim::SimResult result = sim::simulate(schedule, std::move(step), costs, options);
  if (more == 0) return result.step;
  if (!result.round) return std::nullopt;
  return result.step + more / options.round_micro_batches * *result.round;
}

}  // namespace stretto::predict
