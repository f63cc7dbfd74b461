#pragma once
#include <vector>

#include "base/timeline.hpp"

namespace stretto::sim {

// When a solo call (model/schedule/solo.hpp) has its device to itself, it runs in the same way whenever it does. The
// core records how and plays the recording from then on: one event instead of some for each operation. When somebody
// else turns up on the device before the end, or asks for what is inside, the core goes back to the beginning of the
// call and simulates its operations after all. Times count from when the first operation was ready.
struct SoloRecording {
  bool is_complete = false;
  std::vector<TimelineRow> rows;         // [operation of the call]
  std::vector<Picoseconds> slept_until;  // [SoloShape::lanes]: when the first wait of the lane was over
};

}  // namespace stretto::sim
