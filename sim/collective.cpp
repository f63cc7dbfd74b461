#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "sim/core.hpp"

// The part of the core that concerns collectives: members meet, move data in phases, and complete together.

namespace stretto::sim {

Core::Meeting& Core::meeting_of(std::uint32_t lane) {
  return meetings_[meeting_index_[lane * schedule_.communicators.size() + current(lanes_[lane]).communicator]];
}

void Core::arrive(std::uint32_t number, Picoseconds ready) {
  Meeting& meeting = meeting_of(number);
  Lane& lane = lanes_[number];
  lane.state = State::meeting;
  set_started(number, ready);
  if (partners_.instances[meeting.group].size == 1) {
    lane.state = State::completing;
    events_.schedule(number, ready, EventKind::finish);
    return;
  }
  if (meeting.present == 0) {
    meeting.first = number;
    meeting.cost = &costs_.collective[current(lane).id];
    meeting.latest = ready;
  } else {
    const auto& mine = programs_[rank_of(number)].ops[current(lane).op];
    const Lane& other = lanes_[meeting.first];
    const auto& theirs = programs_[rank_of(meeting.first)].ops[current(other).op];
    if (mine.op != theirs.op || mine.layer != theirs.layer || mine.micro_batch != theirs.micro_batch ||
        mine.chunk != theirs.chunk)
      throw runtime_failure("simulation: members of communicator " +
                            schedule_.communicators[partners_.instances[meeting.group].communicator].name +
                            " issue different operations: " + describe(meeting.first) + ", " + describe(number));
  }
  lane.reached = ready;
  meeting.latest = std::max(meeting.latest, ready);
  if (++meeting.present == meeting.lanes.size()) gather(meeting);
}

// Everybody is here: bytes move from `latest` on.
void Core::gather(Meeting& meeting) {
  const CollectiveCost& cost = *meeting.cost;
  const Picoseconds transfer = meeting.latest;
  for (const std::uint32_t lane : meeting.lanes) lanes_[lane].transfer = transfer;
  meeting.phases_left = cost.movement.alone > 0 ? std::max(cost.phases, 1) : 0;
  meeting.moved = false;
  const Picoseconds begin = transfer + cost.latency;
  meeting.wire = cost.edge_bytes > 0 ? network_.start(static_cast<std::uint32_t>(&meeting - meetings_.data()),
                                                      meeting.group, cost.edge_bytes, cost.most_bytes_per_s, begin)
                                     : std::optional(begin);
  start_phase(meeting);
}

// The members have met at `latest`; those that were there before slept and have to wake up first.
void Core::start_phase(Meeting& meeting) {
  const CollectiveCost& cost = *meeting.cost;
  const Picoseconds met = meeting.latest;
  meeting.slept = std::any_of(meeting.lanes.begin(), meeting.lanes.end(),
                              [&](std::uint32_t lane) { return lanes_[lane].reached < met; });
  if (meeting.phases_left == 0) {
    meeting.moved = true;
    try_complete(meeting);
    return;
  }
  --meeting.phases_left;
  meeting.present = 0;
  for (const std::uint32_t number : meeting.lanes) {
    Lane& lane = lanes_[number];
    lane.state = State::working;
    devices_.launch(number, lane.reached < met ? met + costs_.wake : met, cost.movement.alone, cost.movement.cores,
                    cost.movement.cls, cost.beside ? &*cost.beside : nullptr);
  }
}

void Core::movement_ended(std::uint32_t number, Picoseconds now) {
  Meeting& meeting = meeting_of(number);
  lanes_[number].state = State::meeting;
  lanes_[number].reached = now;
  meeting.latest = now;
  if (++meeting.present == meeting.lanes.size()) start_phase(meeting);
}

void Core::transfer_done(std::uint32_t transfer, Picoseconds now) {
  if (transfer >= meetings_.size()) {
    const auto message = transfer - static_cast<std::uint32_t>(meetings_.size());
    messages_[message].wire = now;
    try_complete_message(message);
    return;
  }
  meetings_[transfer].wire = now;
  try_complete(meetings_[transfer]);
}

void Core::try_complete(Meeting& meeting) {
  if (!meeting.moved || !meeting.wire) return;
  const Picoseconds moved = meeting.latest + (meeting.slept ? costs_.wake : 0);
  // Members that are through before the deadline sleep to it; a deadline that has passed costs nothing.
  const Picoseconds wire = *meeting.wire + (*meeting.wire > meeting.latest ? costs_.timer_overshoot : 0);
  const Picoseconds end = std::max(moved, wire);
  for (const std::uint32_t number : meeting.lanes) {
    lanes_[number].state = State::completing;
    events_.schedule(number, end, EventKind::finish);
  }
  meeting.present = 0;
  meeting.moved = false;
}

// ---- messages ----

std::string Core::describe(std::uint32_t number) const {
  const Lane& lane = lanes_[number];
  const BoundProgram& program = programs_[rank_of(number)];
  return "rank " + std::to_string(program.rank) + " lane " + schedule_.lanes[number % lanes_per_rank_].name + " (" +
         label(schedule_, program.ops[current(lane).op]) + ", step " + std::to_string(lane.step) + ")";
}

std::string Core::deadlock_message() const {
  constexpr int kMost = 6;
  std::string message = "simulation: the schedule deadlocks:";
  int blocked = 0;
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Lane& lane = lanes_[number];
    if (lane.state == State::done) continue;
    if (++blocked > kMost) continue;
    message += std::string(blocked > 1 ? ";" : "") + " " + describe(number) + " waits for ";
    if (lane.blocked_on != kNone) {
      const Lane& other = lanes_[lane.blocked_on];
      const std::uint64_t index = (lane.blocked_until - 1) % other.length;
      const BoundProgram& program = programs_[rank_of(number)];
      message += label(schedule_, program.ops[other.ops[index].op]) + " of step " +
                 std::to_string((lane.blocked_until - 1) / other.length) + " on lane " +
                 schedule_.lanes[lane.blocked_on % lanes_per_rank_].name +
                 (lane.blocked_kind == EdgeKind::finish_start ? " to finish" : " to start");
    } else if (lane.state == State::meeting && current(lane).kind != FlatKind::collective) {
      message += "the other end of its message";
    } else if (lane.state == State::meeting) {
      const Meeting& meeting =
          meetings_[meeting_index_[number * schedule_.communicators.size() + current(lane).communicator]];
      message += std::to_string(meeting.lanes.size() - meeting.present) + " of " +
                 std::to_string(meeting.lanes.size()) + " members of communicator " +
                 schedule_.communicators[partners_.instances[meeting.group].communicator].name;
      for (const std::uint32_t member : meeting.lanes)
        if (lanes_[member].state != State::meeting) {
          message += ", first " + describe(member);
          break;
        }
    } else {
      message += "cores of its device";
    }
  }
  if (blocked > kMost) message += "; and " + std::to_string(blocked - kMost) + " more lanes";
  return message;
}

}  // namespace stretto::sim
