#include "compare/profile_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/statistics.hpp"
#include "base/steal.hpp"
#include "base/time_left.hpp"
#include "calibrate/probes/probes.hpp"
#include "exec/launch/timelines.hpp"
#include "report/critical_path.hpp"
#include "report/data_sheet.hpp"

namespace stretto::compare {
namespace {

// Returns the peak of a GPU.
Peak peak_of(const exec::ReadyStep& step) {
  const auto device = step.executor->device();
  if (!device) return {};
  const auto TFLOPs = data_sheet_TFLOPs(device->name, step.schedule.compute_dtype);
  return {TFLOPs.value_or(0) * 1e3, device->memory_GBps,
          TFLOPs ? "its data sheet, and the clock and width of its memory" : "the clock and width of its memory"};
}

// Returns the peak of a host. The least time assumes the highest rate that was measured on a core: the fastest of
// several readings. There is no peak for memory, because a core mostly reads from caches.
Peak peak_of_host(const exec::ReadyStep& step, double fastest_GFLOPs) {
  const int threads = step.schedule.placement.threads_per_rank;
  return {threads * fastest_GFLOPs, 0,
          threads == 1 ? "the fastest sgemm 1024³ on a core between the steps"
                       : fmt::format("the fastest sgemm 1024³ on a core between the steps, times {}", threads)};
}

}  // namespace

ProfiledStep profile_step(exec::ReadyStep& step, std::int64_t turns, launch::ProcessGroup* processes,
                          const std::function<void(const std::string& line)>& progress,
                          const std::function<bool()>& stop) {
  constexpr int kSteps = 2;  // the second one is timed
  const auto device = step.executor->device();
  ProfiledStep result;
  Profile& profile = result.profile;
  profile.device = device ? device->name : "this host";
  profile.peak = peak_of(step);
  std::optional<calibrate::SgemmYardstick> yardstick;
  if (!device && step.schedule.compute_dtype == Dtype::f32) yardstick.emplace(1, 1);  // the host has this yardstick
  double fastest_GFLOPs = 0;
  std::vector<Timeline> timelines;
  // Processes run equally many steps, so none is repeated when one of them was disturbed.
  Undisturbed measure(device ? 0 : 2 * turns);
  TimeLeft time_left;
  for (std::int64_t turn = -1; turn < turns; ++turn) {
    result.complete = !(processes ? processes->any(stop()) : stop());
    if (!result.complete) break;
    if (turn == 0) time_left.restart();
    progress(turn < 0 ? std::string("warming up")
                      : fmt::format("turn {} of {}{}", turn + 1, turns, time_left.after(turn, turns)));
    Timeline plain, timed;
    measure([&] { plain = step.executor->run_without_rows(kSteps); });
    measure([&] { timed = step.executor->run(kSteps); });
    if (processes) timed = launch::gather_timeline(*processes, std::move(timed), step.all.programs);
    if (yardstick) fastest_GFLOPs = std::max(fastest_GFLOPs, yardstick->run_GFLOPs());
    if (turn < 0) continue;
    profile.step_ms.push_back(to_ms(plain.step_end - plain.step_begin));
    profile.timed_step_ms.push_back(to_ms(timed.step_end - timed.step_begin));
    timelines.push_back(std::move(timed));
  }
  if (timelines.empty() || (processes && processes->rank() != 0)) return result;
  if (yardstick) profile.peak = peak_of_host(step, fastest_GFLOPs);
  profile.operations = profile_operations(step.schedule, step.all.programs, timelines, profile.peak);
  result.middle = std::move(timelines[index_of_median(profile.timed_step_ms)]);
  const CriticalPath path = critical_path(step.all, result.middle);
  profile.path_operations = std::ssize(path.rows);
  profile.path_compute_ms = to_ms(path.compute);
  profile.path_communication_ms = to_ms(path.communication);
  profile.path_between_ms = to_ms(path.between);
  return result;
}

}  // namespace stretto::compare
