#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/statistics.hpp"
#include "base/timeline.hpp"

namespace stretto::sim {

// Watches steps go by: when each ends, when the period is steady, and the rows of the step that will be the last. Lanes
// run ahead, so several steps are open at once; rows are kept for open steps only.
class StepRecorder {
 public:
  // `rows` of a step; `lanes` that have operations.
  // `disturbed`: all steps are kept, and the one of the median period is the result.
  StepRecorder(int max_steps, std::size_t rows, std::size_t lanes, bool disturbed)
      : max_steps_(max_steps),
        row_count_(rows),
        lanes_(lanes),
        disturbed_(disturbed),
        steps_(static_cast<std::size_t>(max_steps)) {}

  static constexpr int kFewestSteps = 3;  // two periods, to compare
  static constexpr double kSteady = 1e-6;

  // Where the first `count` rows of a step are written, indexed as the caller likes; nullptr when this step cannot be
  // the last. Of a step that few ranks have begun, few rows are touched.
  TimelineRow* rows_of(int step, std::size_t count) {
    if (step < std::min(kFewestSteps, max_steps_) - 1) return nullptr;
    std::vector<TimelineRow>& rows = steps_[step].rows;
    if (rows.size() < count) {
      if (rows.empty()) rows = std::move(spare_);
      rows.reserve(row_count_);
      rows.resize(std::max(rows.size(), count));
    }
    return rows.data();
  }

  // A lane has finished its last operation of a step. True when that ends the simulation.
  bool lane_done(int step, Picoseconds now) {
    Step& state = steps_[step];
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
  // All that the median was taken of, where steps are disturbed. Before take_timeline().
  std::vector<Timeline> take_disturbed() {
    std::vector<Timeline> all;
    for (int step = first_of_median(); disturbed_ && step < max_steps_; ++step)
      all.push_back({step == 0 ? 0 : steps_[step - 1].end, steps_[step].end,
                     step == last_ ? steps_[step].rows : std::move(steps_[step].rows)});
    return all;
  }

 private:
  struct Step {
    Picoseconds end = 0;
    std::size_t lanes_done = 0;
    std::vector<TimelineRow> rows;
  };
  // Of the steps behind the first two, which begin with nothing under way.
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
  std::size_t row_count_;
  std::size_t lanes_;
  bool disturbed_;
  std::vector<Step> steps_;
  std::vector<TimelineRow> spare_;
  int last_ = 0;
  bool steady_ = false;
};

}  // namespace stretto::sim
