#include "predict/few_micro_batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/deferral.hpp"

namespace stretto::predict {
namespace {

// With virtual stages: rounds that fill the pipeline and leave more than one in which all stages are busy.
constexpr std::int64_t kTellingRounds = 3;

// Returns a number of micro-batches from `least` on that leaves the remainder of a round that the scenario's leaves.
std::int64_t like_all(const Scenario& scenario, std::int64_t least) {
  const std::int64_t all = scenario.num_microbatches(), round = round_of(scenario);
  return least >= all ? all : least + (all - least) % round;
}

// Returns numbers of micro-batches, ascending, that fill the pipeline and leave time for a round that repeats. One
// published step in 40 with virtual stages needs more than the first, and one without in 30 (scenarios/published.csv).
std::vector<std::int64_t> filling(const Scenario& scenario, bool has_straggler) {
  const std::int64_t round = round_of(scenario), stages = scenario.parallel.pipeline_model_parallel_size;
  if (round > 1) {
    const std::int64_t rounds = has_straggler ? kTellingRounds + 1 : kTellingRounds;
    return {rounds * round, 2 * rounds * round};
  }
  return {stages + 2, stages + 4, 2 * (stages + 4)};
}

}  // namespace

Scenario with_micro_batches(Scenario scenario, std::int64_t count) {
  if (const std::int64_t deferred = deferred_head_gradients(scenario);
      deferred > 0 && count < scenario.num_microbatches())
    scenario.overlap.wgrad_deferral_limit = -deferred;
  if (scenario.training.sequences_of_replica == 0)
    scenario.training.sequences_of_replica =
        std::max<std::int64_t>(1, scenario.training.global_batch_size / scenario.parallel.data_parallel_size);
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

std::vector<std::int64_t> micro_batches_to_simulate(const Scenario& scenario, bool has_straggler) {
  const std::int64_t all = scenario.num_microbatches();
  // Chunks in a V have orders that are no repetition of rounds for every number of micro-batches.
  if (lies_in_v(scenario.parallel.pipeline_schedule)) return {all};
  const std::int64_t deferred = deferred_head_gradients(scenario);
  std::vector<std::int64_t> counts;
  for (const std::int64_t few : filling(scenario, has_straggler)) {
    // A further try must be worth it, as it may fail like the one before.
    const std::int64_t count = like_all(scenario, deferred + few), most = counts.empty() ? all - 1 : all / 2;
    if (count <= most) counts.push_back(count);
  }
  counts.push_back(all);
  return counts;
}

std::string why_only_whole(const Scenario& scenario) {
  if (micro_batches_to_simulate(scenario).size() > 1) return "";
  const std::int64_t all = scenario.num_microbatches();
  if (lies_in_v(scenario.parallel.pipeline_schedule)) return "chunks of its stages lie in a V";
  if (deferred_head_gradients(scenario) == all) return "it puts off the head's weight gradients of all micro-batches";
  return fmt::format("{} micro-batches are too few to leave some out", all);
}

namespace {

// `simulate` simulates the step with options.
template <class Simulate>
std::optional<ExtrapolatedStep> extrapolated_by(const Scenario& scenario, const Schedule& schedule,
                                                std::int64_t micro_batches, sim::SimOptions options,
                                                std::string* why_not, const Simulate& simulate) {
  const std::int64_t more = scenario.num_microbatches() - micro_batches;
  options.round_micro_batches = more > 0 ? round_of(scenario) : 0;
  options.round_from = deferred_head_gradients(scenario);
  ExtrapolatedStep extrapolated{&schedule, micro_batches, simulate(options), {}};
  if (more == 0) return extrapolated;
  if (!extrapolated.result.round) {
    if (why_not) *why_not = extrapolated.result.no_round;
    return std::nullopt;
  }
  extrapolated.rounds = {extrapolated.result.round->begin, extrapolated.result.round->period,
                         more / options.round_micro_batches};
  return extrapolated;
}

}  // namespace

std::optional<ExtrapolatedStep> extrapolated_step(const Scenario& scenario, const Schedule& schedule, BoundStep step,
                                                  std::int64_t micro_batches, const sim::Costs& costs,
                                                  sim::SimOptions options, std::string* why_not) {
  return extrapolated_by(
      scenario, schedule, micro_batches, std::move(options), why_not,
      [&](const sim::SimOptions& with) { return sim::simulate(schedule, std::move(step), costs, with); });
}

std::optional<ExtrapolatedStep> extrapolated_step(const Scenario& scenario, const Schedule& schedule,
                                                  const BoundStep& step, const sim::RepeatedSimulation& simulation,
                                                  std::int64_t micro_batches, const sim::Costs& costs,
                                                  sim::SimOptions options, std::string* why_not) {
  std::optional<ExtrapolatedStep> extrapolated =
      extrapolated_by(scenario, schedule, micro_batches, std::move(options), why_not,
                      [&](const sim::SimOptions& with) { return simulation.simulate(costs, with); });
  if (extrapolated && extrapolated->result.programs.empty()) extrapolated->bound = &step;
  return extrapolated;
}

}  // namespace stretto::predict
