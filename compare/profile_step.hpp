#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/timeline.hpp"
#include "exec/ready_step.hpp"
#include "report/profile.hpp"

namespace stretto::compare {

// The measured time of one step, broken down by operation.
struct ProfiledStep {
  Profile profile;       // over the finished turns; if there are none, `step_ms` is empty
  Timeline middle;       // timeline of the turn with the median step time
  bool complete = true;  // false after `stop`
};

// Measures the step `turns` times without timestamps of operations and as often with them, alternating. Each time two
// steps run back to back and the second counts, so that caches and clocks are in their steady state. Steps that the
// hypervisor disturbed are measured again (host only). The peak is the fastest reading of the sgemm yardstick between
// the steps (host, f32), or the GPU's data sheet's.
//
// When ranks are processes all of them call this; rank 0 gets the result, the others only `complete`.
ProfiledStep profile_step(exec::ReadyStep& step, std::int64_t turns, launch::ProcessGroup* processes,
                          const std::function<void(const std::string& line)>& progress,
                          const std::function<bool()>& stop);

}  // namespace stretto::compare
