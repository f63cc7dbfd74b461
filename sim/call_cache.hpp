#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "base/timeline.hpp"
#include "sim/device.hpp"
#include "sim/lanes.hpp"

namespace stretto::sim {

// A recording: when a solo call (model/schedule/solo.hpp) has its device to itself and its lanes come to it at the
// times of the recording, it always runs in the same way. Times count from the time at which the first operation was
// ready.
struct SoloRecording {
  // When another lane must have come to its first operation: before it was woken there, or exactly then.
  struct Arrival {
    Picoseconds at = 0;   // time at which the lane was woken, or had come
    bool sleeps = false;  // the lane waited when it was woken: coming earlier changes nothing
    bool allows(Picoseconds reached) const { return sleeps ? reached < at : reached == at; }
  };
  // An operation at which the call can be entered and left: all operations before it have ended when it is ready, and
  // all operations after it wait for it or for each other. The rest of the call is a solo call of its own.
  struct Entry {
    std::uint32_t op = 0;           // of the call
    SoloShape rest;                 // the operations from `op` on
    std::vector<Arrival> arrivals;  // [lane of `rest`], [0] unused; times count as those of rows
    // The most by which the host may have issued later operations after `op` without delaying any.
    Picoseconds host_slack = 0;
  };
  std::vector<TimelineRow> rows;  // [operation of the call]
  std::vector<Entry> entries;     // ascending; the first is the call's beginning
};

// The call that a rank plays, from an entry on, or records.
struct SoloRun {
  const SoloShape* shape = nullptr;          // nullptr: none
  const SoloRecording* recording = nullptr;  // that it plays; nullptr: it is recorded
  std::size_t entry = 0;                     // of the recording
  std::uint32_t first_op = 0;                // index into BoundProgram::ops of the entry's operation
  Picoseconds begin = 0;                     // time at which that operation was ready
  bool plays() const { return recording != nullptr; }

  // Returns the recorded row of an operation of the run, by its index into BoundProgram::ops.
  const TimelineRow& recorded(std::uint32_t op) const {
    return recording->rows[recording->entries[entry].op + (op - first_op)];
  }
  // Returns the time of a recorded one.
  Picoseconds at(Picoseconds recorded) const {
    return begin + (recorded - recording->rows[recording->entries[entry].op].ready);
  }
  // Writes the rows of the first `count` operations, as if they had been simulated. `rows` begins with the rank's first
  // operation.
  void write_rows(TimelineRow* rows, std::uint32_t count) const;
};

// Records solo calls, and plays the recordings: one event at the end of a call replaces several for each operation.
// This is an optimisation and no part of the model: with `is_open` false it does nothing, and the results are
// byte-identical.
//
// A call enters only by begin(), at its first operation or, when it could not be played from there, at a later entry. A
// played call ends with the `finish` event of its last lane, for end(). When another activity appears on the device
// before, or a lane waits for an operation inside, the caller returns to the latest entry of the call, stop(), and
// simulates the operations from there after all. The player owns the recordings, and knows which call each rank plays
// or records.
class CallCache {
 public:
  CallCache(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, bool is_open);

  // Called when the lane is ready for an operation. Returns true when a call is played from there on, on all its lanes;
  // false when the caller must simulate the operation, which may then be recorded.
  bool begin(std::uint32_t lane, Picoseconds ready) {
    const FlatOp& op = lanes_[lane].current();
    if (op.shape != 0) return begin_call(lane, ready);
    const Stepped& call = stepped_[lanes_.rank_of(lane)];
    return op.op - call.first_op < call.count && begin_rest(lane, ready);
  }

  const SoloRun& run(std::uint32_t rank) const { return runs_[rank]; }
  // Returns whether the rank records a call; each row of the call must then be given to record().
  bool is_recording(std::uint32_t rank) const { return runs_[rank].shape != nullptr && !runs_[rank].plays(); }
  void record(std::uint32_t rank, std::uint32_t op, const TimelineRow& row);

  // Returns whether the awaited operation lies inside a call that is being played.
  bool is_inside(const UnmetWait& wait) const {
    const SoloRun& run = runs_[lanes_.rank_of(wait.on)];
    return run.plays() && is_inside(*run.shape, wait);
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
  // The call whose operations are simulated one by one on a rank, or were.
  struct Stepped {
    std::uint32_t first_op = 0, count = 0;
    std::uint16_t shape = 0;
  };
  // The recordings of a shape differ in when lanes come to the call.
  struct Recordings {
    std::deque<SoloRecording> all;
    int failed = 0;  // attempts
  };
  // A recording that is being made.
  struct Tape {
    std::uint16_t shape = 0;
    std::vector<TimelineRow> rows;
    std::vector<Picoseconds> reached;  // [lane of the shape] time at which it had come to the call
  };
  // Returns the time at which the host has issued an operation of the rank, in the lane's current step.
  Picoseconds issue_time(std::uint32_t rank, std::uint32_t op) const;
  bool is_of(const SoloShape& shape, std::uint32_t lane) const;
  bool is_inside(const SoloShape& shape, const UnmetWait& wait) const;
  bool is_undisturbed(std::uint32_t lane) const;
  bool can_begin(std::uint32_t lane, const SoloShape& shape, std::uint32_t first_op, bool is_whole) const;
  bool allows(const SoloRecording::Entry& entry, Picoseconds entry_ready, std::uint32_t lane, Picoseconds ready) const;
  bool begin_call(std::uint32_t lane, Picoseconds ready);
  bool begin_rest(std::uint32_t lane, Picoseconds ready);
  void play(std::uint32_t lane, Picoseconds ready, const SoloRecording& recording, std::size_t entry);
  std::vector<SoloRecording::Entry> entries_of(std::uint32_t rank) const;
  SoloRun take(std::uint32_t rank);

  const SimInputs& inputs_;
  Lanes& lanes_;
  Devices& devices_;
  EventHeap& events_;
  std::vector<SoloRun> runs_;                        // [rank]
  std::vector<std::vector<Recordings>> recordings_;  // [rank][shape]; empty where `is_open` is false
  std::vector<Stepped> stepped_;                     // [rank]
  std::vector<Tape> tapes_;                          // [rank]
  std::vector<std::uint32_t> rank_on_;               // [device]: the rank whose solo call has it; kNone
};

}  // namespace stretto::sim
