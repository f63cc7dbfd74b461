#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/device.hpp"
#include "sim/event_heap.hpp"
#include "sim/flat_program.hpp"
#include "sim/network/network.hpp"
#include "sim/recorder.hpp"
#include "sim/recording.hpp"

namespace stretto::sim {

// The event-driven heart of the simulator: program counters of the lanes of all simulated ranks, waits between lanes,
// rendezvous of collectives, devices. docs/simulation.md states the semantics. Besides the recorded rows, memory is
// O(ranks · lanes): an operation has no state of its own, its lane has.
class Core : public TimedCore {
 public:
  // Everything is borrowed and must outlive the core. `programs` and `flat` are those of the simulated ranks, in order.
  Core(const Schedule& schedule, const Costs& costs, const std::vector<BoundProgram>& programs,
       const std::vector<std::shared_ptr<const FlatProgram>>& flat, const Partners& partners, Network& network,
       int max_steps);

  // Simulates until the period is steady or max_steps are done. Throws Error(runtime) on a deadlock.
  void run();

  StepRecorder& recorder() { return recorder_; }
  std::int64_t operations() const;  // finished

  Picoseconds next_event() const override { return events_.next_time(); }
  void advance(Picoseconds until) override;
  bool finished() const override { return finished_; }
  void transfer_done(std::uint32_t transfer, Picoseconds now) override;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum class State : std::uint8_t { blocked, queueing, working, meeting, completing, playing, done };

  struct Lane {
    const FlatProgram* program = nullptr;
    const FlatOp* ops = nullptr;  // of this lane
    std::uint32_t length = 0;
    std::uint32_t position = 0;
    std::int32_t step = 0;
    State state = State::done;
    EdgeKind blocked_kind = EdgeKind::finish_start;
    std::uint16_t wait = 0;      // waits of the current operation that are met
    std::uint64_t finished = 0;  // operations, all steps
    std::uint64_t started = 0;
    Picoseconds started_at = 0;       // of the latest started; may lie ahead
    Picoseconds reached = 0;          // when the lane got here: after the previous operation and the overhead
    Picoseconds waited = 0;           // when the latest wait was met
    std::uint64_t blocked_until = 0;  // count that the lane it waits for must reach
    std::uint32_t blocked_on = kNone;
    std::uint32_t next_blocked = kNone;              // list of lanes that wait for the same one
    std::uint32_t first_blocked = kNone;             // lanes that wait for this one
    Picoseconds ready = 0, start = 0, transfer = 0;  // of the current operation, for its row
  };

  // A group meeting on one lane: the collective that its members are in, or gather for.
  struct Meeting {
    std::uint32_t group = 0;
    std::vector<std::uint32_t> lanes;  // of the simulated members
    const CollectiveCost* cost = nullptr;
    std::uint32_t present = 0;    // arrived, or through with the current phase of movement
    std::uint32_t first = kNone;  // the lane that arrived first: all must bring the same operation
    int phases_left = 0;
    Picoseconds latest = 0;           // the last arrival, or end of movement
    bool slept = false;               // some member was there before the last
    bool moved = false;               // all phases of movement are over
    std::optional<Picoseconds> wire;  // the transfer is (or will be) complete
  };

  // What a lane does in a group of joined sends and receives. They complete together.
  struct Exchange {
    std::uint32_t served = 0;             // receives before this one of the group are over
    std::uint32_t open = 0;               // messages that are not over
    Picoseconds latest = 0;               // the last of them was over, or this rank was woken for it
    Picoseconds wire = 0;                 // the last transfer was complete
    std::vector<std::uint32_t> messages;  // [operation of the group] → index into messages_; kNone: over
    std::vector<Picoseconds> met;         // [operation of the group] when both ends were there
    std::vector<Picoseconds> done;        // [operation of the group] when it would have been over alone
  };
  // A message of which at least one end is posted.
  struct Message {
    std::uint32_t link = 0;
    std::array<std::uint32_t, 2> lane = {kNone, kNone};  // of sender and receiver
    std::array<Picoseconds, 2> ready{};
    const CollectiveCost* cost = nullptr;  // the receiver's
    Picoseconds met = 0;
    Picoseconds served = 0;  // its receiver turned to it
    std::optional<Picoseconds> wire, moved;
    bool is_posted() const { return lane[0] != kNone && lane[1] != kNone; }
  };
  struct Link {
    std::deque<std::uint32_t> messages;     // index into messages_, in order, those with an end missing
    std::array<std::uint64_t, 2> posted{};  // of sender and receiver
    std::uint64_t complete = 0;             // both
  };

  // The call that a rank plays, or records: one at a time.
  struct Solo {
    const SoloShape* shape = nullptr;  // nullptr: none
    SoloRecording* recording = nullptr;
    std::uint32_t first_op = 0;  // index into BoundProgram::ops
    Picoseconds begin = 0;
    bool plays = false;
  };

  const FlatOp& current(const Lane& lane) const { return lane.ops[lane.position]; }
  std::uint32_t rank_of(std::uint32_t lane) const { return lane / lanes_per_rank_; }
  Meeting& meeting_of(std::uint32_t lane);

  void resolve_waits(std::uint32_t lane);
  void wake_blocked(std::uint32_t on, EdgeKind kind, Picoseconds time);
  void begin(std::uint32_t lane, Picoseconds ready);
  void begin_operation(std::uint32_t lane, Picoseconds ready);
  void communicate(std::uint32_t lane, Picoseconds start);
  void set_started(std::uint32_t lane, Picoseconds time);
  void drain_granted();
  void on_finish(std::uint32_t lane, Picoseconds now);
  void finish_operation(std::uint32_t lane, Picoseconds now);
  bool pass(std::uint32_t lane, std::uint32_t operations, Picoseconds end);
  void go_on(std::uint32_t lane, Picoseconds now);

  bool begin_solo(std::uint32_t lane, Picoseconds ready);
  bool can_begin_solo(std::uint32_t lane, const SoloShape& shape, std::uint32_t first_op, Picoseconds ready) const;
  bool is_of_solo(const Solo& solo, std::uint32_t lane) const;
  bool is_inside(const Solo& solo, std::uint32_t lane, EdgeKind kind, std::uint64_t count) const;
  void forget_blocked(std::uint32_t lane);
  void record(Solo& solo, std::uint32_t op, const TimelineRow& row);
  void end_playing(std::uint32_t lane, Picoseconds now);
  void stop_playing(std::uint32_t rank);
  bool disturb(std::uint32_t lane);
  void count_played(Picoseconds until, std::uint32_t lane);

  void arrive(std::uint32_t lane, Picoseconds now);
  void gather(Meeting& meeting);
  void start_phase(Meeting& meeting);
  void movement_ended(std::uint32_t lane, Picoseconds now);
  void try_complete(Meeting& meeting);

  void exchange(std::uint32_t lane, Picoseconds ready);
  std::uint32_t post(std::uint32_t link, bool is_receiver, std::uint32_t lane, Picoseconds ready);
  void begin_transfer(std::uint32_t message);
  void serve(std::uint32_t lane);
  void moved(std::uint32_t lane, Picoseconds now);
  void try_complete_message(std::uint32_t message);
  void end_message(std::uint32_t message, bool is_receiver);

  std::string deadlock_message() const;
  std::string describe(std::uint32_t lane) const;

  const Schedule& schedule_;
  const Costs& costs_;
  const std::vector<BoundProgram>& programs_;
  Network& network_;
  std::uint32_t lanes_per_rank_;
  int max_steps_;
  EventHeap events_;
  std::vector<Lane> lanes_;
  Devices devices_;
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> meeting_index_;  // [lane · communicators + communicator]
  const Partners& partners_;
  std::vector<Exchange> exchanges_;  // [lane]
  std::vector<Link> links_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_messages_;
  std::vector<std::size_t> row_begin_;  // [rank]
  StepRecorder recorder_;
  std::vector<Solo> solos_;                             // [rank]
  std::vector<std::vector<SoloRecording>> recordings_;  // [rank][shape]
  std::vector<std::uint32_t> solo_on_;                  // [device]: the rank whose solo call has it; kNone
  std::int64_t played_ = 0;  // operations finished in calls that were still played at the end
  bool finished_ = false;
};

}  // namespace stretto::sim
