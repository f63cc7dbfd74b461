#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/timeline.hpp"
#include "exec/cuda/launch_plan.hpp"
#include "exec/cuda/module/handles.hpp"

namespace stretto::cuda {

// Events on a device around every operation of a step, and the timeline made from them.
class StepTimes {
 public:
  // Events of an operation: its waits are over; bytes begin to move; its own message has moved, although joined ones
  // may not have; it is complete.
  enum Mark : std::size_t { ready, moving, moved, done, kMarks };

  explicit StepTimes(const std::vector<BoundProgram>& programs);
  const CudaEvent& mark(std::uint32_t rank, std::uint32_t op, Mark which) const {
    return *marks_[first_mark_[rank] + kMarks * op + which];
  }
  const CudaEvent& begin() const { return begin_; }

  // Returns the timeline of the step whose marks were recorded last, counted from `origin`; all marks must have
  // happened. Where ranks share the device (`is_shared`) messages have times of their own, because one of both ends
  // moves them.
  Timeline timeline(const CudaEvent& origin, const std::vector<BoundProgram>& programs, const LaunchPlan& launches,
                    bool is_shared) const;

 private:
  std::vector<std::size_t> first_mark_;  // [rank]
  std::vector<std::unique_ptr<CudaEvent>> marks_;
  const CudaEvent begin_{true};
};

}  // namespace stretto::cuda
