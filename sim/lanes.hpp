#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/inputs.hpp"

namespace stretto::sim {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// The component that has the lane; it decides the meaning of the lane's next event.
enum class LaneStage : std::uint8_t {
  blocked,     // the lane waits for another lane, or is about to look at its waits
  queueing,    // the lane waits for cores to hold while it communicates
  working,     // Devices has the lane: it computes, or moves bytes of a communication
  meeting,     // Collectives or Exchanges has the lane: it waits for others
  completing,  // the end of its communication is known
  playing,     // CallCache has the lane
  done,        // the lane has no operation left
};

// A lane's position in its program.
struct Cursor {
  const FlatProgram* program = nullptr;
  const FlatOp* ops = nullptr;  // operations of this lane
  std::uint32_t length = 0;     // operations of a step
  std::uint32_t position = 0;   // position of the current operation
  std::int32_t step = 0;
  LaneStage stage = LaneStage::done;
  EdgeKind blocked_kind = EdgeKind::finish_start;
  std::uint16_t wait = 0;      // met waits of the current operation
  std::uint64_t finished = 0;  // finished operations, in all steps
  std::uint64_t started = 0;
  Picoseconds started_at = 0;       // start of the latest operation; this may lie in the future
  Picoseconds reached = 0;          // time at which the lane reached the current operation, overhead included
  Picoseconds waited = 0;           // time at which its latest wait was met
  std::uint64_t blocked_until = 0;  // operations that the other lane must have started or finished
  std::uint32_t blocked_on = kNone;
  std::uint32_t next_blocked = kNone;              // list of the lanes that wait for the same lane
  std::uint32_t first_blocked = kNone;             // list of the lanes that wait for this one
  Picoseconds ready = 0, start = 0, transfer = 0;  // times of the current operation, for its row

  const FlatOp& current() const { return ops[position]; }
};

// An unmet wait: lane `on` must have started or finished `count` operations.
struct UnmetWait {
  std::uint32_t on = 0;
  EdgeKind kind = EdgeKind::finish_start;
  std::uint64_t count = 0;
};

// The process that issues the operations of a rank, segment by segment. It begins a step when all lanes have ended the
// previous one, and no lane begins before that (sim/flat_program).
struct HostClock {
  std::vector<Picoseconds> begins = {0};  // [segment of the current step] begin, for segments that have begun
  std::vector<Picoseconds> before;        // [segment] the same of the step before
  std::uint32_t lanes = 0;                // lanes that have operations
  std::uint32_t done = 0;                 // lanes that have ended the current step
  Picoseconds end = 0;                    // end of the last of them

  void end_segment(const FlatOp& op, Picoseconds now) {
    begins.resize(op.segment + 2);
    begins.back() = std::max(begins[op.segment] + op.awaited, now);
  }
  void lane_done(Picoseconds now) {
    end = std::max(end, now);
    if (++done < lanes) return;
    before = std::exchange(begins, {end});
    done = 0;
  }
};

// The program counters of all lanes, and the waits between the lanes of a rank. It owns all cursors; other components
// change the stage of a lane that they have, and the times for its row. Memory is O(lanes): an operation has no state.
// Lanes are numbered over all ranks, rank · per_rank() + LaneId. Times are picoseconds since the simulation began;
// `finished` and `started` count operations of all steps and only grow, and `started` is never below `finished` between
// two events. `inputs` is borrowed. Throws nothing.
class Lanes {
 public:
  explicit Lanes(const SimInputs& inputs);

  std::uint32_t size() const { return static_cast<std::uint32_t>(cursors_.size()); }
  std::uint32_t per_rank() const { return per_rank_; }
  bool has_host() const { return has_host_; }
  std::uint32_t rank_of(std::uint32_t lane) const { return lane / per_rank_; }
  std::uint32_t first_of(std::uint32_t rank) const { return rank * per_rank_; }
  Cursor& operator[](std::uint32_t lane) { return cursors_[lane]; }
  const Cursor& operator[](std::uint32_t lane) const { return cursors_[lane]; }

  // Returns the next unmet wait of the current operation, if any. Waits that are met are counted and forgotten.
  std::optional<UnmetWait> next_unmet(std::uint32_t number) {
    Cursor& lane = cursors_[number];
    const FlatOp& op = lane.current();
    const FlatWait* waits = lane.program->waits.data() + op.wait_begin;
    for (; lane.wait < op.wait_count; ++lane.wait) {
      const FlatWait& wait = waits[lane.wait];
      if (wait.steps_ago > lane.step) continue;
      const std::uint32_t on = number - number % per_rank_ + wait.lane;
      const Cursor& other = cursors_[on];
      const std::uint64_t count =
          static_cast<std::uint64_t>(lane.step - wait.steps_ago) * other.length + wait.position + 1;
      const bool is_start = wait.kind == EdgeKind::start_start;
      if ((is_start ? other.started : other.finished) < count) return UnmetWait{on, wait.kind, count};
      if (is_start && other.started == count) lane.waited = std::max(lane.waited, other.started_at);
    }
    return std::nullopt;
  }
  // Returns the time at which the current operation, whose waits are all met, is ready. A lane that slept wakes up
  // first.
  Picoseconds ready_time(std::uint32_t number) const {
    const Cursor& lane = cursors_[number];
    const Picoseconds waited = lane.waited > lane.reached ? lane.waited + wake_ : lane.reached;
    return has_host_ ? std::max(waited, issue_time(number, lane.current())) : waited;
  }
  const HostClock& host_of(std::uint32_t rank) const { return hosts_[rank]; }  // where there is a host
  // Returns the time at which the host has issued an operation of the lane's current step.
  Picoseconds issue_time(std::uint32_t number, const FlatOp& op) const {
    return hosts_[rank_of(number)].begins[op.segment] + op.issued;
  }

  // Puts the lane, which is on no list, on the list of the lane that it waits for.
  void block(std::uint32_t number, const UnmetWait& wait) {
    Cursor &lane = cursors_[number], &other = cursors_[wait.on];
    lane.blocked_kind = wait.kind;
    lane.blocked_until = wait.count;
    lane.blocked_on = wait.on;
    lane.next_blocked = other.first_blocked;
    other.first_blocked = number;
  }
  // Removes a lane from the list of lanes that wait for another, if it is on one.
  void unblock(std::uint32_t number) {
    Cursor& lane = cursors_[number];
    if (lane.blocked_on == kNone) return;
    std::uint32_t* link = &cursors_[lane.blocked_on].first_blocked;
    while (*link != number) link = &cursors_[*link].next_blocked;
    *link = lane.next_blocked;
    lane.blocked_on = kNone;
  }
  // Returns whether the lane is blocked on another lane and on that lane's list. A lane that is being woken is on no
  // list.
  bool is_listed(std::uint32_t number) const {
    std::uint32_t listed = cursors_[cursors_[number].blocked_on].first_blocked;
    while (listed != kNone && listed != number) listed = cursors_[listed].next_blocked;
    return listed != kNone;
  }

  // Removes from lane `on`'s list the lanes whose waits are now met. They form a list of their own; returns its first
  // lane, or kNone. Other waiting lanes stay listed, because a solo call that begins meanwhile may advance them.
  std::uint32_t take_woken(std::uint32_t on, EdgeKind kind);
  // Wakes the first lane of that list at `time`. Returns the rest of the list.
  std::uint32_t wake(std::uint32_t woken, Picoseconds time) {
    Cursor& lane = cursors_[woken];
    lane.blocked_on = kNone;
    lane.waited = std::max(lane.waited, time);
    ++lane.wait;
    return lane.next_blocked;
  }

  // Records that `operations` from the current one on have started.
  void set_started(std::uint32_t number, std::uint32_t operations, Picoseconds time) {
    Cursor& lane = cursors_[number];
    lane.started += operations;
    lane.started_at = time;
  }
  // Advances the lane by `operations`; the last of them ended at `end`. Returns true when they end a step of the lane.
  bool leave(std::uint32_t number, std::uint32_t operations, Picoseconds end) {
    Cursor& lane = cursors_[number];
    for (std::uint32_t i = 0; has_host_ && i < operations; ++i)
      if (const FlatOp& op = lane.ops[lane.position + i]; op.ends_segment) hosts_[rank_of(number)].end_segment(op, end);
    lane.finished += operations;
    lane.wait = 0;
    lane.waited = 0;
    lane.reached = end + op_overhead_;
    lane.stage = LaneStage::blocked;
    lane.position += operations;
    if (lane.position < lane.length) {
      // Lanes take turns, so that the memory of each is far from what was read last.
      __builtin_prefetch(lane.ops + lane.position + 1);
      __builtin_prefetch(lane.program->waits.data() + lane.current().wait_begin + kWaitsAhead);
      return false;
    }
    lane.position = 0;
    ++lane.step;
    if (has_host_) hosts_[rank_of(number)].lane_done(end);
    return true;
  }

  std::int64_t finished() const;  // operations of all lanes
  std::int64_t per_step() const;  // operations of a step, of all lanes
  // Returns "rank 1 lane compute (fc1.forward …, step 2)": the lane and its current operation.
  std::string describe(std::uint32_t number) const;
  // Returns the operation, its step and its lane, on which the lane is blocked.
  std::string describe_wait(std::uint32_t number) const;

 private:
  static constexpr std::uint32_t kWaitsAhead = 8;  // a cache line

  const SimInputs& inputs_;
  std::uint32_t per_rank_;
  Picoseconds wake_, op_overhead_;
  bool has_host_;
  std::vector<HostClock> hosts_;  // [rank]
  std::vector<Cursor> cursors_;
};

}  // namespace stretto::sim
