#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "model/scenario.hpp"
#include "model/verify/verify.hpp"
#include "report/exposure.hpp"
#include "report/memory.hpp"
#include "sim/cost/cost.hpp"
#include "sim/options.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// A step of which only the times are wanted, for many sets of constants: they are told by verified schedules with few
// micro-batches (predict/few_micro_batches.hpp), and equal those of the whole step to the picosecond. Where few do not
// tell them, the whole schedule is built once. Owns a copy of the scenario. Thread-safe.
class QuickStep {
 public:
  // Throws Error(input) when the scenario cannot be built or its schedule is not correct.
  explicit QuickStep(const Scenario& scenario);

  // Returns the costs of the least schedule. Equal costs give equal steps. Throws Error(input) naming the cost key that
  // the platform file lacks.
  sim::Costs costs(const sim::Platform& platform, const Framework& framework) const;
  // Returns the duration of a step in seconds.
  double step_s(const sim::Platform& platform, const Framework& framework, const sim::SimOptions& options = {}) const;

  // The step with its parts, which add up to it within a picosecond for each round that was not simulated.
  struct Parts {
    Picoseconds step = 0;
    Breakdown mean;  // over all ranks
  };
  Parts parts(const sim::Platform& platform, const Framework& framework) const;
  // Returns the use of a device's memory (memory_of()), which does not depend on the number of micro-batches unless a
  // graph has them all.
  DeviceMemory memory(const sim::Platform& platform) const;
  const Schedule& schedule() const { return built(least_).schedule; }  // with few micro-batches

 private:
  const VerifiedSchedule& built(std::int64_t micro_batches) const;
  sim::Costs costs_of(const Schedule& schedule, const sim::Platform& platform, const Framework& framework) const;

  const Scenario scenario_;
  const std::int64_t least_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::unique_ptr<const VerifiedSchedule>> built_;  // [micro-batches]
};

}  // namespace stretto::predict
