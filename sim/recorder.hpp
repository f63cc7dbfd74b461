#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/statistics.hpp"
#include "base/timeline.hpp"
#include "sim/inputs.hpp"

namespace stretto::sim {

// Watches steps: when each ends, when the period is steady, and the rows of the step that will be the last. Lanes run
// ahead, so several steps are open at once; rows are kept for open steps only.
class StepRecorder {
 public:
  // `programs` belong to the simulated ranks. `disturbed`: no two steps are equal; all are kept, and the one of the
  // median period is the result. `stops_when_steady`: false goes on to max_steps.
  StepRecorder(int max_steps, const SimInputs& inputs, bool disturbed, bool stops_when_steady)
      : max_steps_(max_steps),
        disturbed_(disturbed),
        stops_when_steady_(stops_when_steady),
        steps_(static_cast<std::size_t>(max_steps)) {
    for (std::size_t rank = 0; rank < inputs.programs.size(); ++rank) {
      const FlatProgram& flat = *inputs.flat[rank];
      for (const FlatWait& wait : flat.waits)
        if (wait.steps_ago > 0)
          crossing_.push_back(row_begin_.back() + flat.ops[flat.lane_begin[wait.lane] + wait.position].op);
      row_begin_.push_back(row_begin_.back() + inputs.programs[rank].ops.size());
      for (const auto& lane : inputs.programs[rank].lanes) lanes_ += !lane.empty();
    }
  }

  static constexpr double kSteady = 1e-6;

  // Returns the rows of a rank, [index into BoundProgram::ops]. Memory of ranks that have not begun the step stays
  // untouched. Valid until the next call.
  TimelineRow* rows_of(int step, std::uint32_t rank) {
    std::vector<TimelineRow>& rows = steps_[step].rows;
    if (rows.size() < row_begin_[rank + 1]) {
      if (rows.empty()) rows = std::move(spare_);
      rows.reserve(row_begin_.back());
      rows.resize(std::max(rows.size(), row_begin_[rank + 1]));
    }
    return rows.data() + row_begin_[rank];
  }

  // Records that `lane`, numbered over all ranks, has finished its last operation of a step. Returns true when that
  // ends the simulation.
  bool lane_done(int step, std::uint32_t lane, Picoseconds now) {
    WatchedStep& state = steps_[step];
    state.end = std::max(state.end, now);
    state.lane_ends.resize(std::max<std::size_t>(state.lane_ends.size(), lane + 1));
    state.lane_ends[lane] = now;
    if (++state.lanes_done < lanes_) return false;
    if (disturbed_) return step + 1 == max_steps_ && take_median();
    last_ = step;
    steady_ = is_steady(step);
    if ((steady_ && stops_when_steady_) || step + 1 == max_steps_) return true;
    if (step > 0) spare_ = std::move(steps_[step - 1].rows);
    return false;
  }

  std::int64_t steps() const { return last_ + 1; }
  Picoseconds end(int step) const { return steps_[step].end; }
  // Returns whether a step with these rows, all of whose lanes end so much later than in the one before, is one that
  // the next would repeat.
  bool would_repeat(int step, Picoseconds shift) const {
    return has_equal_rows(step, shift, steps_[step - 1].end + shift);
  }
  // Ends with the step, whose rows are complete, and which ends so much later than the one before.
  void end_by_repeating(int step, Picoseconds shift) {
    steps_[step].end = steps_[step - 1].end + shift;
    last_ = step;
    steady_ = true;
  }

  // Valid once lane_done has returned true, or after end_by_repeating().
  bool steady() const { return steady_; }
  Timeline take_timeline() {
    return {last_ == 0 ? 0 : steps_[last_ - 1].end, steps_[last_].end, std::move(steps_[last_].rows)};
  }
  // Returns all steps over which the median was taken, where steps are disturbed. Call it before take_timeline().
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
    std::vector<Picoseconds> lane_ends;  // [lane of all ranks]; 0 where it has no operations
    std::vector<TimelineRow> rows;
  };
  bool is_steady(int step) const {
    // Two equal periods suffice, because a lane may be later and later without holding up the others.
    if (step > 1 &&
        std::abs(static_cast<double>(period(step) - period(step - 1))) <= kSteady * static_cast<double>(period(step)))
      return true;
    return step > 0 && is_repeated(step);
  }
  // Returns whether the next step will repeat this one: the ends of all lanes, the operations that the next step waits
  // for, and the operations that are still running when it begins are exactly one period later than in the step before.
  bool is_repeated(int step) const {
    const WatchedStep &state = steps_[step], &before = steps_[step - 1];
    for (std::size_t lane = 0; lane < state.lane_ends.size(); ++lane)
      if (state.lane_ends[lane] > 0 && state.lane_ends[lane] - before.lane_ends[lane] != period(step)) return false;
    return has_equal_rows(step, period(step), state.end);
  }
  bool has_equal_rows(int step, Picoseconds period, Picoseconds end) const {
    const WatchedStep &state = steps_[step], &before = steps_[step - 1];
    const auto repeats = [&](std::size_t row) {
      const TimelineRow &now = state.rows[row], &then = before.rows[row];
      return now.end - then.end == period && now.start - then.start == period;
    };
    if (!std::all_of(crossing_.begin(), crossing_.end(), repeats)) return false;
    Picoseconds next_begin = end;
    for (const TimelineRow& row : state.rows) next_begin = std::min(next_begin, row.start + period);
    for (std::size_t row = 0; row < state.rows.size(); ++row)
      if (state.rows[row].end > next_begin && !repeats(row)) return false;
    return true;
  }
  // The median leaves out the first two steps, which begin with nothing active.
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
  bool disturbed_, stops_when_steady_;
  std::size_t lanes_ = 0;                     // lanes that have operations
  std::vector<std::size_t> row_begin_ = {0};  // [rank], with one more at the end
  std::vector<std::size_t> crossing_;         // rows for which the next step waits
  std::vector<WatchedStep> steps_;
  std::vector<TimelineRow> spare_;
  int last_ = 0;
  bool steady_ = false;
};

}  // namespace stretto::sim
