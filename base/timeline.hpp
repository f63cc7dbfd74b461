#pragma once
#include <cstdint>
#include <vector>

namespace stretto {

// Simulated and measured times are integer picoseconds everywhere except in files and reports: ties are exact and sums
// do not depend on their order. 2^63 ps is 106 days.
using Picoseconds = std::int64_t;
// Upper bounds of a single operation (2.5 hours) and of simulated time (26 days). A double holds the first exactly; the
// second plus one operation slowed four hundredfold does not overflow.
constexpr Picoseconds kLongestOperation = Picoseconds{1} << 53;
constexpr Picoseconds kHorizon = Picoseconds{1} << 61;
constexpr Picoseconds kPicosecondsPerMicrosecond = 1'000'000;
inline double to_us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }
inline double to_ms(Picoseconds time) { return static_cast<double>(time) * 1e-9; }
// Converts microseconds ≥ 0, rounded; saturates at the horizon.
inline Picoseconds from_us(double us) {
  return us * 1e6 < static_cast<double>(kHorizon) ? static_cast<Picoseconds>(us * 1e6 + 0.5) : kHorizon;
}

// One executed operation of one rank in one step. The key is (rank, op): `op` indexes the rank's BoundProgram::ops, so
// a predicted and a measured row with equal keys are one operation. Names, lanes and phases come from BoundProgram.
//
//   ready            start      transfer         end
//     |--- queueing ---|-- peers --|--- transfer ---|      communication
//     |-- core token --|-------- compute -----------|      compute
struct TimelineRow {
  std::int32_t rank = 0;     // global rank; in a folded run, the representative of its class
  std::uint32_t op = 0;      // index into BoundProgram::ops of that rank
  Picoseconds ready = 0;     // all waits were met and the lane had reached this operation
  Picoseconds start = 0;     // compute: got its core; communication: this rank arrived at the rendezvous
  Picoseconds transfer = 0;  // communication: the last member arrived and bytes began to move; compute: = start
  Picoseconds end = 0;       // the operation was complete on this rank
  // Messages of one group end together. `waited` is the part of the time after `transfer` in which this message waited
  // for the other messages or their senders; alone, this message would have ended at moved().
  Picoseconds waited = 0;

  Picoseconds moved() const { return end - waited; }
};

// One step of a schedule, simulated or measured. Plain data; owns its rows. All times count from one origin. step_end −
// step_begin is the steady period: from the end of the previous step's last operation to the end of this step's last
// operation.
struct Timeline {
  Picoseconds step_begin = 0;
  Picoseconds step_end = 0;
  std::vector<TimelineRow> rows;  // in order of (rank, op)
};

}  // namespace stretto
