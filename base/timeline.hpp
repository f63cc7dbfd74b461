#pragma once
#include <cstdint>
#include <vector>

namespace stretto {

// Simulated and measured time is integer picoseconds everywhere between reading a file and printing a number: ties are
// exact and sums do not depend on their order. 2^63 ps is 106 days.
using Picoseconds = std::int64_t;
// The longest single operation (2.5 hours) and the longest simulated time (26 days) there may be. One operation slowed
// four hundredfold past the latter still fits; doubles hold the former exactly.
constexpr Picoseconds kLongestOperation = Picoseconds{1} << 53;
constexpr Picoseconds kHorizon = Picoseconds{1} << 61;
constexpr Picoseconds kPicosecondsPerMicrosecond = 1'000'000;
inline double to_us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }
inline double to_ms(Picoseconds time) { return static_cast<double>(time) * 1e-9; }
// us ≥ 0; what is beyond the horizon becomes the horizon.
inline Picoseconds from_us(double us) {
  return us * 1e6 < static_cast<double>(kHorizon) ? static_cast<Picoseconds>(us * 1e6 + 0.5) : kHorizon;
}

// One executed operation of one rank in one step. The key is (rank, op): `op` indexes the rank's BoundProgram::ops, so
// a predicted and a measured row with equal keys are the same operation. Names, lanes and phases come from there.
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
  // A message that is joined with others ends with the last of them. So much of the time from `transfer` on it waited
  // for the others, or for their senders; alone it would have been complete at moved().
  Picoseconds waited = 0;

  Picoseconds moved() const { return end - waited; }
};

// One step of a schedule, by the simulator or by an executor. Owns its rows; plain data, no thread rules.
// Times count from an origin shared by all rows; `step_begin` and `step_end` bound the step: the difference is the
// steady period (end of the last operation of this step minus end of the last operation of the step before).
struct Timeline {
  Picoseconds step_begin = 0;
  Picoseconds step_end = 0;
  std::vector<TimelineRow> rows;  // in order of (rank, op)
};

}  // namespace stretto
