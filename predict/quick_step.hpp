#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "model/scenario.hpp"
#include "model/verify/verify.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/stragglers.hpp"
#include "report/memory.hpp"
#include "sim/cost/cost.hpp"
#include "sim/engine.hpp"
#include "sim/options.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// Predicts the times of a step for many sets of constants: it extrapolates them from schedules with few micro-batches
// (predict/few_micro_batches.hpp); they equal those of the whole step to the picosecond. Every schedule is verified
// before it is simulated, once. Where few do not suffice, the whole schedule is built. Owns a copy of the
// scenario. Thread-safe.
class QuickStep {
 public:
  // Builds nothing yet. Whatever builds throws Error(input) when the scenario cannot be built.
  explicit QuickStep(const Scenario& scenario);

  const Scenario& scenario() const { return scenario_; }
  const Schedule& schedule() const { return first().schedule; }  // with few micro-batches
  // Returns the costs of that schedule. Equal costs give equal steps. Throws Error(input) naming the cost key that the
  // platform file lacks.
  sim::Costs costs(const sim::Platform& platform, const Framework& framework) const;

  // Returns the step, and in `why_more` for each number of micro-batches that did not suffice the reason.
  // `stragglers`: places that are slower than others; then there is no breakdown where the step is extrapolated from
  // few micro-batches.
  ExtrapolatedStep extrapolate(const sim::Platform& platform, const Framework& framework,
                               const sim::SimOptions& options = {}, std::string* why_more = nullptr,
                               const Stragglers& stragglers = {}) const;
  // Does the same with the costs that `costs_of` makes of a schedule.
  using CostsOf = std::function<sim::Costs(const Schedule& schedule)>;
  ExtrapolatedStep extrapolate(const CostsOf& costs_of, const sim::SimOptions& options = {},
                               std::string* why_more = nullptr) const;
  // Return the duration of a step in seconds: with the costs of schedule(), which are costs(platform, framework), where
  // they are known; with other loads of experts, which change costs alone.
  double step_s(const sim::Platform& platform, const Framework& framework, const sim::SimOptions& options = {},
                const sim::Costs* costs = nullptr) const;
  double step_s(const sim::Platform& platform, const Framework& framework, const ExpertLoads& loads) const;
  // Returns the use of a device's memory (memory_of()), which does not depend on the number of micro-batches unless a
  // graph has them all.
  DeviceMemory memory(const sim::Platform& platform) const;

 private:
  struct Built {
    explicit Built(VerifiedSchedule of) : verified(std::move(of)), simulation(verified.schedule, verified) {}
    const VerifiedSchedule verified;
    const sim::RepeatedSimulation simulation;
  };
  const Built& built(std::int64_t micro_batches) const;
  ExtrapolatedStep extrapolate_by(std::vector<std::int64_t> counts, const CostsOf& costs_of,
                                  const sim::SimOptions& options, std::string* why_more) const;
  const VerifiedSchedule& first() const;  // its plan counts for all
  sim::Costs costs_of(const Schedule& schedule, const sim::Platform& platform, const Framework& framework) const;
  sim::Costs costs_of(const Schedule& schedule, const sim::Platform& platform, const Framework& framework,
                      const Training& training) const;

  const Scenario scenario_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::unique_ptr<const Built>> built_;  // [micro-batches]
};

}  // namespace stretto::predict
