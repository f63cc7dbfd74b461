#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/statistics.hpp"
#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::sim {

// Watches steps go by: when each ends, when the period is steady, and the rows of the step that will be the last. Lanes
// run ahead, so several steps are open at once; rows are kept for open steps only.
class StepRecorder {
 public:
  // `programs` of the simulated ranks. `disturbed`: no two steps are equal; all are kept, and the one of the median
  // period is the result.
  StepRecorder(int max_steps, const std::vector<BoundProgram>& programs, bool disturbed)
      : max_steps_(max_steps), disturbed_(disturbed), steps_(static_cast<std::size_t>(max_steps)) {
    for (const BoundProgram& program : programs) {
      row_begin_.push_back(row_begin_.back() + program.ops.size());
      for (const auto& lane : program.lanes) lanes_ += !lane.empty();
    }
  }

  static constexpr int kFewestSteps = 3;  // two periods, to compare
  static constexpr double kSteady = 1e-6;

  // The rows of a rank, [index into BoundProgram::ops]; nullptr when this step cannot be the last. Memory of
  // ranks that have not begun the step stays untouched. Valid until the next call.
  TimelineRow* rows_of(int step, std::uint32_t rank) {
    if (step < std::min(kFewestSteps, max_steps_) - 1) return nullptr;
    std::vector<TimelineRow>& rows = steps_[step].rows;
    if (rows.size() < row_begin_[rank + 1]) {
      if (rows.empty()) rows = std::move(spare_);
      rows.reserve(row_begin_.back());
      rows.resize(std::max(rows.size(), row_begin_[rank + 1]));
    }
    return rows.data() + row_begin_[rank];
  }

  // A lane has finished its last operation of a step. True when that ends the simulation.
  bool lane_done(int step, Picoseconds now) {
    WatchedStep& state = steps_[step];
    state.end = std::max(state.end, now);
    if (++state.lanes_done < lanes_) return false;
    if (disturbed_) return step + 1 == max_steps_ && take_median();
    last_ = step;
    steady_ = step + 1 >= kFewestSteps && std::abs(static_cast<double>(period(step) - period(step - 1))) <=
                                              kSteady * static_cast<double>(period(step));
    if (steady_ || step + 1 == max_steps_) return true;
    spare_ = std::move(state.rows);
    return false;
  }

  // Valid once lane_done has returned true.
  bool steady() const { return steady_; }
  Timeline take_timeline() {
    return {last_ == 0 ? 0 : steps_[last_ - 1].end, steps_[last_].end, std::move(steps_[last_].rows)};
  }
  // All steps that the median was taken of, where steps are disturbed. Before take_timeline().
  std::vector<Timeline> take_disturbed() {
    std::vector<Timeline> all;
    for (int step = first_of_median(); disturbed_ && step < max_steps_; ++step)
      all.push_back({step == 0 ? 0 : steps_[step - 1].end, steps_[step].end,
                     step == last_ ? steps_[step].rows : std::move(steps_[step].rows)});
    return all;
  }

 private:
  struct WatchedStep {
    Picoseconds end = 0;
    std::size_t lanes_done = 0;
    std::vector<TimelineRow> rows;
  };
  // The median leaves out the first two steps, which begin with nothing under way.
  bool take_median() {
    const int first = first_of_median();
    std::vector<double> periods;
    for (int step = first; step < max_steps_; ++step) periods.push_back(static_cast<double>(period(step)));
    last_ = first + static_cast<int>(index_of_median(periods));
    steady_ = true;
    return true;
  }
  int first_of_median() const { return std::min(2, max_steps_ - 1); }
  Picoseconds period(int step) const { return steps_[step].end - (step == 0 ? 0 : steps_[step - 1].end); }

  int max_steps_;
  bool disturbed_;
  std::size_t lanes_ = 0;                     // that have operations
  std::vector<std::size_t> row_begin_ = {0};  // [rank], and the end
  std::vector<WatchedStep> steps_;
  std::vector<TimelineRow> spare_;
  int last_ = 0;
  bool steady_ = false;
};

}  // namespace stretto::sim
