#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/timeline.hpp"
#include "exec/ready_step.hpp"
#include "report/profile.hpp"

namespace stretto::compare {

// Where the time of one step goes, as it was measured.
struct ProfiledStep {
  Profile profile;       // of the turns that were finished; without any, `step_ms` is empty
  Timeline middle;       // of the turn with the median step
  bool complete = true;  // false when `stop` said so
};

// Runs a step `turns` times without the times of operations being taken and as often with them, in turns, each the
// second of two back to back: caches and clocks are as a step leaves them. What the hypervisor disturbed on a host is
// measured again. On a host in f32, the peak is the fastest reading of the sgemm yardstick between the steps; on a GPU,
// its data sheet's.
//
// Where ranks are processes all of them call this; rank 0 gets the result, the others only whether it is complete.
ProfiledStep profile_step(exec::ReadyStep& step, std::int64_t turns, launch::ProcessGroup* processes,
                          const std::function<void(const std::string& line)>& progress,
                          const std::function<bool()>& stop);

}  // namespace stretto::compare
