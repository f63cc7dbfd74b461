#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "base/timeline.hpp"

namespace stretto::trace {

// Times in which any of a set of kernels runs: their intervals, joined and in order.
class Busy {
 public:
  using Interval = std::pair<Picoseconds, Picoseconds>;  // begin and end

  explicit Busy(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end());
    for (const auto& [begin, end] : intervals)
      if (!joined_.empty() && begin <= joined_.back().second)
        joined_.back().second = std::max(joined_.back().second, end);
      else
        joined_.push_back({begin, end});
  }

  // Returns how long any of the set runs.
  Picoseconds total() const {
    Picoseconds sum = 0;
    for (const auto& [begin, end] : joined_) sum += end - begin;
    return sum;
  }
  // Returns how long any of the set runs from `begin` to `end`.
  Picoseconds within(Picoseconds begin, Picoseconds end) const {
    auto at = std::lower_bound(joined_.begin(), joined_.end(), begin,
                               [](const Interval& interval, Picoseconds t) { return interval.second <= t; });
    Picoseconds common = 0;
    for (; at != joined_.end() && at->first < end; ++at)
      common += std::min(at->second, end) - std::max(at->first, begin);
    return common;
  }
  // Returns how long kernels of both sets run.
  Picoseconds common(const Busy& other) const {
    Picoseconds sum = 0;
    for (const auto& [begin, end] : joined_) sum += other.within(begin, end);
    return sum;
  }
  // Returns the share of a time in which any of the set runs; 0 of no time.
  double share_of(Picoseconds begin, Picoseconds end) const {
    return end > begin ? double(within(begin, end)) / double(end - begin) : 0;
  }

 private:
  std::vector<Interval> joined_;
};

// A kernel is concurrent with others when they run during this share of its time, and alone when they run during less
// than the rest.
constexpr double kConcurrent = 0.9;

}  // namespace stretto::trace
