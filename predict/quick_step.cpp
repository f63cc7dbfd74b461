#include "predict/quick_step.hpp"

#include <optional>

#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/predict_step.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::predict {

QuickStep::QuickStep(const Scenario& scenario) : scenario_(scenario), least_(telling_micro_batches(scenario).front()) {
  built(least_);
}

const VerifiedSchedule& QuickStep::built(std::int64_t micro_batches) const {
  const std::lock_guard lock(mutex_);
  auto& at = built_[micro_batches];
  if (!at)
    at = std::make_unique<const VerifiedSchedule>(
        plan_and_verify(build_schedule(with_micro_batches(scenario_, micro_batches), free_memory_bytes())));
  return *at;
}

sim::Costs QuickStep::costs_of(const Schedule& schedule, const sim::Platform& platform,
                               const Framework& framework) const {
  return sim::cost_schedule(schedule, platform, scenario_.cluster, 1, framework, scenario_.training);
}

sim::Costs QuickStep::costs(const sim::Platform& platform, const Framework& framework) const {
  return costs_of(schedule(), platform, framework);
}

double QuickStep::step_s(const sim::Platform& platform, const Framework& framework,
                         const sim::SimOptions& options) const {
  for (const std::int64_t count : telling_micro_batches(scenario_)) {
    const VerifiedSchedule& few = built(count);
    const std::optional<Picoseconds> step =
        told_step(scenario_, few.schedule, few, count, costs_of(few.schedule, platform, framework), options);
    if (step) return to_ms(*step) * 1e-3;
  }
  return 0;  // not reached: the last count is the whole step's
}

QuickStep::Parts QuickStep::parts(const sim::Platform& platform, const Framework& framework) const {
  const auto run = [&](std::int64_t count, std::int64_t round) {
    const VerifiedSchedule& of = built(count);
    sim::SimOptions options;
    options.round_micro_batches = round;
    return sim::simulate(of.schedule, of, costs_of(of.schedule, platform, framework), options);
  };
  const auto parts_of = [&](const sim::SimResult& result) {
    return Parts{result.step, mean_breakdown(schedule(), result.programs, result.timeline)};
  };
  const std::int64_t all = scenario_.num_microbatches(), round = round_of(scenario_);
  for (const std::int64_t count : telling_micro_batches(scenario_)) {
    const sim::SimResult result = run(count, count < all ? round : 0);
    Parts parts = parts_of(result);
    if (count == all) return parts;
    if (!result.round) continue;
    // Two steps that differ by one round say what a round consists of.
    const Parts more = parts_of(run(count + round, 0));
    if (more.step != parts.step + *result.round) continue;
    const std::int64_t rounds = (all - count) / round;
    const auto extend = [&](Picoseconds& part, Picoseconds with_one) { part += rounds * (with_one - part); };
    extend(parts.step, more.step);
    extend(parts.mean.compute, more.mean.compute);
    extend(parts.mean.core_wait, more.mean.core_wait);
    for (std::size_t c = 0; c < parts.mean.exposed.size(); ++c) extend(parts.mean.exposed[c], more.mean.exposed[c]);
    extend(parts.mean.exposed_total, more.mean.exposed_total);
    extend(parts.mean.queue_wait, more.mean.queue_wait);
    extend(parts.mean.bubble, more.mean.bubble);
    extend(parts.mean.host, more.mean.host);
    return parts;
  }
  return {};  // not reached: the last count is the whole step's
}

DeviceMemory QuickStep::memory(const sim::Platform& platform) const {
  const bool has_graph = (platform.accelerator || platform.gpu) && !scenario_.framework.memory.is_known &&
                         scenario_.training.enable_cuda_graph;
  const VerifiedSchedule& of = built(has_graph ? scenario_.num_microbatches() : least_);
  return memory_of(of.schedule, of.plan, platform, scenario_.training, scenario_.framework);
}

}  // namespace stretto::predict
