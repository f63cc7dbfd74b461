#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/timeline.hpp"

namespace stretto {

// [begin, end) on a timeline.
struct Interval {
  Picoseconds begin = 0, end = 0;
};

// Removes the part that [begin, end) covers from the free intervals, so that no instant counts twice. Returns the
// length of that part, and calls seen(from, to) for each of its pieces. `free` is in order and does not overlap, before
// and after. O(length of `free`).
template <class Seen>
Picoseconds take(std::vector<Interval>& free, Picoseconds begin, Picoseconds end, const Seen& seen) {
  Picoseconds taken = 0;
  for (std::size_t i = 0; i < free.size();) {
    const Interval part = free[i];
    const Picoseconds from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) {
      ++i;
      continue;
    }
    taken += to - from;
    seen(from, to);
    const auto here = free.begin() + static_cast<std::ptrdiff_t>(i);
    if (part.begin < from && to < part.end) {
      free[i].end = from;
      free.insert(here + 1, {to, part.end});
      return taken;
    }
    if (part.begin < from) {
      free[i++].end = from;
    } else if (to < part.end) {
      free[i++].begin = to;
    } else {
      free.erase(here);
    }
  }
  return taken;
}
inline Picoseconds take(std::vector<Interval>& free, Picoseconds begin, Picoseconds end) {
  return take(free, begin, end, [](Picoseconds, Picoseconds) {});
}

// Time intervals of one communication lane in one step: transfers, or waits of one kind. Earlier steps have these
// intervals too, shifted by one period each. Times are of the step that is the timeline's result. A value type that
// throws nothing; charge() moves its cursors, so one object serves one pass over a timeline.
class LaneWindows {
 public:
  struct Window {
    Picoseconds begin = 0, end = 0;
    // time at which the lane went on: later than `end` where the operation was joined with other messages
    Picoseconds lane_end = 0;
    std::uint32_t position = 0;
    std::uint32_t communicator = 0;
    bool joined = false;  // joined with the previous operation
  };
  static constexpr int kSteps = 3;  // how far back windows are looked at: 0, 1 and 2 steps ago

  void reserve(std::size_t count) { windows_.reserve(count); }
  // Adds a window; windows come in the order of the lane.
  void add(const Window& window) { windows_.push_back(window); }

  // Removes from the free intervals the parts that windows up to `last_position` cover, in the step `steps_ago` steps
  // of `period` before. Adds their length to to[communicator], or to the only element, and calls seen(window, from, to)
  // for each piece. Of two calls with equal `steps_ago`, 0 to kSteps − 1, the second's free intervals are not before
  // the first's.
  template <class Seen>
  void charge(std::vector<Interval>& free, int steps_ago, Picoseconds period, std::int64_t last_position,
              std::span<Picoseconds> to, const Seen& seen) {
    if (free.empty() || windows_.empty()) return;
    const Picoseconds shift = -steps_ago * period;
    std::size_t& first = first_[static_cast<std::size_t>(steps_ago)];
    while (first < windows_.size() && windows_[first].lane_end + shift <= free.front().begin) ++first;
    for (auto window = windows_.begin() + static_cast<std::ptrdiff_t>(first);
         window != windows_.end() && window->position <= last_position && !free.empty(); ++window) {
      if (window->begin + shift >= free.back().end) {
        // A later one of joined messages may have begun earlier.
        if (window + 1 != windows_.end() && (window + 1)->joined) continue;
        break;
      }
      to[to.size() == 1 ? 0 : window->communicator] +=
          take(free, window->begin + shift, window->end + shift,
               [&](Picoseconds piece_from, Picoseconds piece_to) { seen(*window, piece_from, piece_to); });
    }
  }

 private:
  std::vector<Window> windows_;
  std::array<std::size_t, kSteps> first_{};  // [steps ago]: the first window that may reach beyond the free intervals
};

}  // namespace stretto
