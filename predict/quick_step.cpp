#include "predict/quick_step.hpp"

#include <fmt/format.h>

#include <optional>

#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "predict/predict_step.hpp"
#include "sim/cost/cost_schedule.hpp"
#include "sim/engine.hpp"

namespace stretto::predict {
namespace {

Schedule build(const Scenario& scenario, std::int64_t micro_batches) {
  return build_schedule(with_micro_batches(scenario, micro_batches), free_memory_bytes());
}

}  // namespace

QuickStep::QuickStep(const Scenario& scenario) : scenario_(scenario) {}

const QuickStep::Built& QuickStep::built(std::int64_t micro_batches) const {
  const std::lock_guard lock(mutex_);
  auto& at = built_[micro_batches];
  if (!at) at = std::make_unique<const Built>(plan_and_verify(build(scenario_, micro_batches)));
  return *at;
}

const VerifiedSchedule& QuickStep::first() const {
  return built(micro_batches_to_simulate(scenario_).front()).verified;
}

sim::Costs QuickStep::costs_of(const Schedule& schedule, const sim::Platform& platform, const Framework& framework,
                               const Training& training) const {
  return sim::cost_schedule(schedule, platform, scenario_.cluster, 1, framework, training);
}
sim::Costs QuickStep::costs_of(const Schedule& schedule, const sim::Platform& platform,
                               const Framework& framework) const {
  return costs_of(schedule, platform, framework, scenario_.training);
}

sim::Costs QuickStep::costs(const sim::Platform& platform, const Framework& framework) const {
  return costs_of(schedule(), platform, framework);
}

ExtrapolatedStep QuickStep::extrapolate(const sim::Platform& platform, const Framework& framework,
                                        const sim::SimOptions& options, std::string* why_more,
                                        const Stragglers& stragglers) const {
  const auto costs_apart = [&](const Schedule& schedule) {
    sim::Costs costs = costs_of(schedule, platform, framework);
    set_apart(costs, schedule, stragglers);
    return costs;
  };
  return extrapolate_by(micro_batches_to_simulate(scenario_, stragglers.any()), costs_apart, options, why_more);
}

ExtrapolatedStep QuickStep::extrapolate(const CostsOf& costs_of, const sim::SimOptions& options,
                                        std::string* why_more) const {
  return extrapolate_by(micro_batches_to_simulate(scenario_), costs_of, options, why_more);
}

ExtrapolatedStep QuickStep::extrapolate_by(std::vector<std::int64_t> counts, const CostsOf& costs_of,
                                           const sim::SimOptions& options, std::string* why_more) const {
  const auto extrapolated_by = [&](std::int64_t count, std::string* why_not) {
    const auto& [few, simulation] = built(count);
    return extrapolated_step(scenario_, few.schedule, few, simulation, count, costs_of(few.schedule), options, why_not);
  };
  if (why_more) *why_more = why_only_whole(scenario_);
  // Flows of SimGrid share links in floating point.
  if (options.network == sim::NetworkKind::simgrid && counts.size() > 1) {
    counts.erase(counts.begin(), counts.end() - 1);
    if (why_more) *why_more = "on SimGrid's network no two rounds are equal to the picosecond";
  }
  for (std::size_t i = 0; i + 1 < counts.size(); ++i) {
    std::string why_not;
    if (std::optional<ExtrapolatedStep> extrapolated = extrapolated_by(counts[i], &why_not))
      return *std::move(extrapolated);
    if (why_more) *why_more += fmt::format("{}{} micro-batches: {}", i == 0 ? "" : "; ", counts[i], why_not);
  }
  return extrapolated_by(counts.back(), nullptr).value();
}

double QuickStep::step_s(const sim::Platform& platform, const Framework& framework, const sim::SimOptions& options,
                         const sim::Costs* costs) const {
  const auto known_costs = [&](const Schedule& of) {
    return costs != nullptr && &of == &schedule() ? *costs : costs_of(of, platform, framework);
  };
  return to_ms(extrapolate(known_costs, options).step()) * 1e-3;
}

double QuickStep::step_s(const sim::Platform& platform, const Framework& framework, const ExpertLoads& loads) const {
  Training training = scenario_.training;
  training.expert_loads = loads;
  return to_ms(extrapolate([&](const Schedule& of) { return costs_of(of, platform, framework, training); }).step()) *
         1e-3;
}

DeviceMemory QuickStep::memory(const sim::Platform& platform) const {
  const bool has_graph = (platform.accelerator || platform.gpu) && !scenario_.framework.memory.is_known &&
                         scenario_.training.enable_cuda_graph;
  const VerifiedSchedule& planned = has_graph ? built(scenario_.num_microbatches()).verified : first();
  return memory_of(planned.schedule, planned.plan, platform, scenario_.training, scenario_.framework, planned.programs);
}

}  // namespace stretto::predict
