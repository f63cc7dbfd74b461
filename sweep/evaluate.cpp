#include "sweep/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "model/build_schedule.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/verify/verify_wanted.hpp"
#include "predict/few_micro_batches.hpp"
#include "predict/framework_memory.hpp"
#include "predict/predict_step.hpp"
#include "report/throughput.hpp"
#include "report/units.hpp"
#include "sim/cost/cost_schedule.hpp"

namespace stretto::sweep {
namespace {

// `unsure`: half width of the interval of the bytes, as a share. Returns false where no part of it fits.
bool fits_by(Point& point, double bytes, double device_bytes, double unsure, const char* what) {
  point.memory_bytes = static_cast<std::int64_t>(bytes);
  point.device_bytes = static_cast<std::int64_t>(device_bytes);
  point.fit = fit_of(bytes, device_bytes, unsure);
  if (point.fit != Fit::does_not_fit) return true;
  point.status = Status::does_not_fit;
  point.reason = fmt::format("{} {} of {}", what, size_text(bytes), size_text(device_bytes));
  return false;
}

void simulate(Point& point, const Scenario& scenario, const sim::Platform& platform) {
  std::int64_t devices = 0;
  PeakRate peak;
  for (const std::int64_t count : predict::micro_batches_to_simulate(scenario)) {
    const Scenario few = predict::with_micro_batches(scenario, count);
    Schedule built = build_schedule(few, free_memory_bytes());
    const sim::Costs costs = sim::cost_schedule(built, platform, few.cluster, 1, few.framework, few.training);
    std::optional<VerifiedSchedule> verified = plan_and_verify_wanted(
        std::move(built), [&](const Schedule& planned, const MemoryPlan& plan, const BoundStep& bound) {
          if (point.simulated_micro_batches != 0) return true;  // the memory of the first is that of all
          const DeviceMemory memory =
              predict::memory_of(planned, plan, platform, few.training, few.framework, bound.programs);
          return fits_by(point, double(memory.predicted_bytes()), double(memory.device_bytes), memory.unsure, "needs");
        });
    if (!verified) return;
    const Schedule& schedule = verified->schedule;
    point.simulated_micro_batches = count;
    const std::optional<predict::ExtrapolatedStep> step =
        predict::extrapolated_step(scenario, schedule, static_cast<BoundStep&&>(*verified), count, costs);
    if (!step) continue;
    point.step_ms = to_ms(step->step());
    devices = point.gpus / schedule.placement.ranks_per_device;
    peak = predict::peak_of(platform, scenario.cluster, schedule, devices);
    break;
  }
  const Throughput rate = throughput_of(scenario, point.step_ms, devices, peak);
  point.tokens_per_s_per_gpu = rate.tokens_per_s_per_device;
  point.mfu = rate.mfu;
  point.status = Status::predicted;
  point.reason.clear();
}

}  // namespace

void look_at(Point& point, const Scenario& scenario, const sim::Platform& platform, Families& families) {
  const Families::Member member{scenario, platform, point.set};
  point.status = Status::open;
  point.gpus = scenario.parallel.ranks();
  point.micro_batches = scenario.num_microbatches();
  if (!platform.accelerator) return;
  const double ranks_per_device = double(std::max<std::int64_t>(1, scenario.cluster.ranks_per_device));
  if (!fits_by(point, least_state_bytes(scenario, families.elements(member)) * ranks_per_device,
               double(platform.memory_bytes), predict::kUnsureMemory, "at least"))
    return;
  if (const TimeFamily* times = families.times(member)) point.bound_ms = least_step_ms(scenario, *times);
}

bool is_slower(Point& point, double limit_ms) {
  if (!(point.bound_ms > limit_ms)) return false;
  point.status = Status::slower;
  point.reason = fmt::format("at least {}", time_text(point.bound_ms));
  return true;
}

void decide(Point& point, const Scenario& scenario, const sim::Platform& platform, Families& families,
            double limit_ms) try {
  if (is_slower(point, limit_ms)) return;
  if (const MemoryFamily* memory = families.memory({scenario, platform, point.set}))
    if (!fits_by(point, least_bytes(scenario, *memory), double(platform.memory_bytes), predict::kUnsureMemory,
                 "at least"))
      return;
  simulate(point, scenario, platform);
} catch (const Error& error) {
  if (error.kind() != ErrorKind::input) throw;
  point.status = Status::refused;
  point.reason = error.what();
}

}  // namespace stretto::sweep
