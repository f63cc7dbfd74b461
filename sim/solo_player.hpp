#pragma once
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "sim/device.hpp"
#include "sim/lanes.hpp"

namespace stretto::sim {

// A recording: when a solo call (model/schedule/solo.hpp) has its device to itself, it always runs in the same way.
// Times count from the time at which the first operation was ready.
struct SoloRecording {
  bool is_complete = false;
  std::vector<TimelineRow> rows;         // [operation of the call]
  std::vector<Picoseconds> slept_until;  // [SoloShape::lanes]: time at which the first wait of the lane was over
  // The most by which the host may have issued later operations after the call's first one without delaying the call.
  Picoseconds host_slack = 0;
};

// The call that a rank plays or records.
struct SoloRun {
  const SoloShape* shape = nullptr;  // nullptr: none
  SoloRecording* recording = nullptr;
  std::uint32_t first_op = 0;  // index into BoundProgram::ops
  Picoseconds begin = 0;
  bool plays = false;

  // Writes the rows of the call, as if it had been simulated. `rows` begins with the rank's first operation.
  void write_rows(TimelineRow* rows) const;
};

// Records solo calls, and plays the recordings: one event at the end of a call replaces several for each operation.
// This is an optimisation and no part of the model: with `is_open` false it does nothing, and the results are
// byte-identical.
//
// A call enters only by begin(). A played call ends with the `finish` event of its last lane, for end(). When another
// activity appears on the device before, or a lane waits for an operation inside, the caller returns to the beginning
// of the call, stop(), and simulates its operations after all. It owns the recordings, and knows which call each rank
// plays or records.
class SoloPlayer {
 public:
  SoloPlayer(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, bool is_open);

  // Called when the lane is ready for the first operation of a solo call. Returns true when the call is played, on all
  // its lanes; false when the caller must simulate the operation, which may then be recorded.
  bool begin(std::uint32_t lane, Picoseconds ready);

  const SoloRun& run(std::uint32_t rank) const { return runs_[rank]; }
  // Returns whether the rank records a call; each row of the call must then be given to record().
  bool is_recording(std::uint32_t rank) const { return runs_[rank].shape != nullptr && !runs_[rank].plays; }
  void record(std::uint32_t rank, std::uint32_t op, const TimelineRow& row);

  // Returns whether the awaited operation lies inside a call that is being played.
  bool is_inside(const UnmetWait& wait) const {
    const SoloRun& run = runs_[lanes_.rank_of(wait.on)];
    return run.plays && is_inside(run, wait);
  }
  // Called when a lane asks for cores of its device. Returns the rank whose call must be stopped because of that, or
  // kNone. A call that is being recorded is no longer recorded.
  std::uint32_t disturbed_by(std::uint32_t lane);

  // The call that the rank plays has ended, or is given up. Its lanes are blocked where they were when it began.
  SoloRun end(std::uint32_t rank) { return take(rank); }
  SoloRun stop(std::uint32_t rank);

  // Returns the operations of played calls that have finished before the event of the lane at `until`.
  std::int64_t finished_before(Picoseconds until, std::uint32_t lane) const;

 private:
  // Returns the time at which the host has issued an operation of the rank, in the lane's current step.
  Picoseconds issue_time(std::uint32_t rank, std::uint32_t op) const;
  bool is_of(const SoloRun& run, std::uint32_t lane) const;
  bool is_inside(const SoloRun& run, const UnmetWait& wait) const;
  bool can_begin(std::uint32_t lane, const SoloShape& shape, std::uint32_t first_op) const;
  SoloRun take(std::uint32_t rank);

  const SimInputs& inputs_;
  Lanes& lanes_;
  Devices& devices_;
  EventHeap& events_;
  std::vector<SoloRun> runs_;                           // [rank]
  std::vector<std::vector<SoloRecording>> recordings_;  // [rank][shape]; empty where `is_open` is false
  std::vector<std::uint32_t> rank_on_;                  // [device]: the rank whose solo call has it; kNone
};

}  // namespace stretto::sim
