#pragma once
#include <cstdint>

#include "sim/call_cache.hpp"
#include "sim/lanes.hpp"
#include "sim/recorder.hpp"

namespace stretto::sim {

// Ends a simulation early in a step: mostly the state at some moment of the second step is that of the first, a time D
// before, and with a straggler that of the third step is that of the second. All that follows is then what followed
// there, D later, in this step and in all further ones, and D is the steady period. As no step is active but these two,
// the state at a moment t is what lanes are at and since when, and the work left of operations that are active. The
// latter follows from the times of all operations that were active since the first of those began. So this part
// compares rows of both steps and no other state, but with a host its clock: the host of each rank begins a step when
// the rank has ended the one before, the first when all do. A host that is D later than in the step before is equal;
// another host is equal where no operation that is still to come waited for it there or waits for it now.
//
// It is asked a few times in a step, when one lane has come a certain part of its way. An optimisation, and no part of
// the model: results are those of steps that are simulated to their ends.
class RepeatedStep {
 public:
  // It is not asked where `is_open` is false.
  RepeatedStep(const SimInputs& inputs, const Lanes& lanes, const CallCache& player, StepRecorder& recorder,
               bool is_open);

  // Called when a lane has left operations.
  void left(std::uint32_t lane) {
    if (lane != watched_ || lanes_[lane].step == 0) return;
    if (lanes_[lane].step != step_) step_ = lanes_[lane].step, next_ = first_asked_;
    if (lanes_[lane].position >= next_) is_due_ = true;
  }
  bool is_due() const { return is_due_; }
  // Returns whether all that follows `now` repeats the step before; then the recorder has the latest step whole. All
  // events at or before `now` must have been handled.
  bool is_repeated(Picoseconds now);
  // Returns, with a host, the operations of the step after the latest one that end before the latest one does.
  std::int64_t operations_ahead() const { return ahead_; }

 private:
  bool is_like_then(Picoseconds now, Picoseconds shift);
  bool issues_like_then(std::uint32_t rank, Picoseconds shift) const;
  std::int64_t count_ahead(Picoseconds shift);

  const SimInputs& inputs_;
  const Lanes& lanes_;
  const CallCache& player_;
  StepRecorder& recorder_;
  std::uint32_t watched_ = kNone;  // the lane that says when to ask
  std::uint32_t first_asked_ = 0;  // its position at which to ask first in a step
  std::uint32_t next_ = 0;         // its position at which to ask next
  std::int32_t step_ = 0;          // its step
  bool is_due_ = false;
  std::int64_t ahead_ = 0;
};

}  // namespace stretto::sim
