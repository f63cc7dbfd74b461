#include <algorithm>
#include <cassert>

#include "sim/core.hpp"

// The part of the core that concerns solo calls: they are recorded once, and played while nobody disturbs them.

namespace stretto::sim {

bool Core::is_of_solo(const Solo& solo, std::uint32_t number) const {
  const std::uint32_t lane = number % lanes_per_rank_;
  return std::any_of(solo.shape->lanes.begin(), solo.shape->lanes.end(),
                     [&](const SoloShape::OnLane& on) { return on.lane == lane; });
}

// Whether the lane's operation number `count` is one of the call that is played, and not the end of its last one.
bool Core::is_inside(const Solo& solo, std::uint32_t number, EdgeKind kind, std::uint64_t count) const {
  const Lane& lane = lanes_[number];
  for (const SoloShape::OnLane& on : solo.shape->lanes) {
    if (on.lane != number % lanes_per_rank_) continue;
    const bool is_end = on.lane == solo.shape->last_lane && kind == EdgeKind::finish_start;
    return count > lane.finished && count < lane.finished + on.count + !is_end;
  }
  return false;
}

// The rank and its device are as they were when the call was recorded, or would have been: nothing runs on the device,
// every lane of the call waits for the call, and nobody else waits for something inside.
bool Core::can_begin_solo(std::uint32_t number, const SoloShape& shape, std::uint32_t first_op,
                          Picoseconds ready) const {
  const std::uint32_t rank = rank_of(number), device = devices_.device_of(number);
  if (solos_[rank].shape) return false;
  if (devices_.is_contended(number) && (!devices_.is_idle(device) || solo_on_[device] != kNone)) return false;
  const Solo solo{&shape, nullptr, first_op, ready, false};
  const std::uint32_t base = rank * lanes_per_rank_;
  for (const SoloShape::OnLane& on : shape.lanes) {
    const Lane& lane = lanes_[base + on.lane];
    if (base + on.lane == number) continue;
    if (lane.state != State::blocked || lane.wait != 0 || lane.step != lanes_[number].step ||
        lane.position != programs_[rank].ops[first_op + on.first].position)
      return false;
    if (lane.blocked_on == kNone) continue;  // it has just come to it
    std::uint32_t listed = lanes_[lane.blocked_on].first_blocked;
    while (listed != kNone && listed != base + on.lane) listed = lanes_[listed].next_blocked;
    if (listed == kNone) return false;  // it is just being looked at
  }
  for (std::uint32_t other = base; other < base + lanes_per_rank_; ++other) {
    const Lane& lane = lanes_[other];
    if (lane.state == State::blocked && lane.blocked_on != kNone && !is_of_solo(solo, other) &&
        is_inside(solo, lane.blocked_on, lane.blocked_kind, lane.blocked_until))
      return false;
  }
  return true;
}

// Takes a lane off the list of those that wait for another.
void Core::forget_blocked(std::uint32_t number) {
  Lane& lane = lanes_[number];
  if (lane.blocked_on == kNone) return;
  std::uint32_t* link = &lanes_[lane.blocked_on].first_blocked;
  while (*link != number) link = &lanes_[*link].next_blocked;
  *link = lane.next_blocked;
  lane.blocked_on = kNone;
}

// At the first operation of a call that can be played. True when it is.
bool Core::begin_solo(std::uint32_t number, Picoseconds ready) {
  const std::uint32_t rank = rank_of(number);
  const Lane& lane = lanes_[number];
  if (recordings_[rank].empty()) return false;
  const std::size_t index = current(lane).shape - 1u;
  const SoloShape& shape = lane.program->shapes[index];
  SoloRecording& recording = recordings_[rank][index];
  const std::uint32_t first_op = current(lane).op;
  if (!can_begin_solo(number, shape, first_op, ready)) return false;
  const std::uint32_t base = rank * lanes_per_rank_;
  for (std::size_t i = 1; i < shape.lanes.size() && recording.is_complete; ++i)
    if (lanes_[base + shape.lanes[i].lane].reached >= ready + recording.slept_until[i]) return false;

  solos_[rank] = {&shape, &recording, first_op, ready, recording.is_complete};
  if (devices_.is_contended(number)) solo_on_[devices_.device_of(number)] = rank;
  if (!recording.is_complete) {
    recording.rows.assign(shape.count, {});
    recording.slept_until.clear();
    for (const SoloShape::OnLane& on : shape.lanes) recording.slept_until.push_back(lanes_[base + on.lane].reached);
    return false;
  }
  for (const SoloShape::OnLane& on : shape.lanes) {
    forget_blocked(base + on.lane);
    lanes_[base + on.lane].state = State::playing;
  }
  events_.schedule(base + shape.last_lane, ready + recording.rows.back().end, EventKind::finish);
  return true;
}

void Core::record(Solo& solo, std::uint32_t op, const TimelineRow& row) {
  if (op < solo.first_op || op - solo.first_op >= solo.shape->count) return;
  const std::uint32_t rank = static_cast<std::uint32_t>(&solo - solos_.data());
  std::vector<TimelineRow>& rows = solo.recording->rows;
  const std::uint32_t at = op - solo.first_op;
  rows[at] = {
      row.rank,  at, row.ready - solo.begin, row.start - solo.begin, row.transfer - solo.begin, row.end - solo.begin,
      row.waited};
  if (at + 1 < rows.size()) return;
  // The last one. What is missing, or still to end, has 0 as its end.
  bool is_good = std::all_of(rows.begin(), rows.end(),
                             [&](const TimelineRow& r) { return r.end > 0 && r.end <= rows.back().end; });
  // Lanes must have slept until the call woke them: when they had come to it does then not matter.
  for (std::size_t i = 1; i < solo.shape->lanes.size(); ++i) {
    const Picoseconds reached = solo.recording->slept_until[i];
    solo.recording->slept_until[i] = rows[solo.shape->lanes[i].first].ready - costs_.wake;
    is_good = is_good && reached < solo.begin + solo.recording->slept_until[i];
  }
  solo.recording->is_complete = is_good;
  const std::uint32_t device = devices_.device_of(rank * lanes_per_rank_);
  if (solo_on_[device] == rank) solo_on_[device] = kNone;
  solo = {};
}

void Core::end_playing(std::uint32_t number, Picoseconds now) {
  const std::uint32_t rank = rank_of(number), base = rank * lanes_per_rank_;
  const Solo solo = solos_[rank];
  const std::vector<TimelineRow>& recorded = solo.recording->rows;
  if (solo_on_[devices_.device_of(number)] == rank) solo_on_[devices_.device_of(number)] = kNone;
  solos_[rank] = {};
  if (TimelineRow* rows = recorder_.rows_of(lanes_[number].step, row_begin_[rank] + programs_[rank].ops.size())) {
    rows += row_begin_[rank] + solo.first_op;
    for (const TimelineRow& row : recorded)
      *rows++ = {row.rank,
                 solo.first_op + row.op,
                 row.ready + solo.begin,
                 row.start + solo.begin,
                 row.transfer + solo.begin,
                 row.end + solo.begin,
                 row.waited};
  }
  for (const SoloShape::OnLane& on : solo.shape->lanes) {
    Lane& lane = lanes_[base + on.lane];
    const std::uint32_t last = programs_[rank].lanes[on.lane][lane.position + on.count - 1] - solo.first_op;
    lane.started += on.count;
    lane.started_at = solo.begin + recorded[last].start;
    if (on.lane == solo.shape->last_lane) continue;
    [[maybe_unused]] const bool is_end = pass(base + on.lane, on.count, solo.begin + recorded[last].end);
    assert(!is_end);
  }
  for (const SoloShape::OnLane& on : solo.shape->lanes)
    if (on.lane != solo.shape->last_lane) resolve_waits(base + on.lane);
  const auto of_last = std::find_if(solo.shape->lanes.begin(), solo.shape->lanes.end(),
                                    [&](const SoloShape::OnLane& on) { return on.lane == solo.shape->last_lane; });
  if (!pass(number, of_last->count, now)) go_on(number, now);
}

// Back to the beginning of the call. Its events lie in the past then, and are handled before any other: they concern
// this rank alone.
void Core::stop_playing(std::uint32_t rank) {
  const Solo solo = solos_[rank];
  const std::uint32_t base = rank * lanes_per_rank_;
  const std::uint32_t first = base + solo.shape->lanes.front().lane;
  if (solo_on_[devices_.device_of(first)] == rank) solo_on_[devices_.device_of(first)] = kNone;
  solos_[rank] = {};
  events_.cancel(base + solo.shape->last_lane);
  for (const SoloShape::OnLane& on : solo.shape->lanes) lanes_[base + on.lane].state = State::blocked;
  for (const SoloShape::OnLane& on : solo.shape->lanes)
    if (base + on.lane != first) resolve_waits(base + on.lane);
  begin_operation(first, solo.begin);
}

// A lane asks for cores of its device. True when that ends the playing of a call, so that time has gone back.
bool Core::disturb(std::uint32_t number) {
  const std::uint32_t rank = solo_on_[devices_.device_of(number)];
  if (rank == kNone || (rank == rank_of(number) && is_of_solo(solos_[rank], number))) return false;
  if (solos_[rank].plays) {
    stop_playing(rank);
    return true;
  }
  solo_on_[devices_.device_of(number)] = kNone;
  solos_[rank] = {};  // what is recorded is not how the call runs by itself
  return false;
}

// What has finished in calls that are still played when the lane ends the simulation.
void Core::count_played(Picoseconds until, std::uint32_t number) {
  for (std::uint32_t rank = 0; rank < solos_.size(); ++rank) {
    const Solo& solo = solos_[rank];
    if (!solo.plays) continue;
    for (const TimelineRow& row : solo.recording->rows) {
      const std::uint32_t lane = rank * lanes_per_rank_ + programs_[rank].ops[solo.first_op + row.op].lane;
      const Picoseconds end = solo.begin + row.end;
      played_ += end < until || (end == until && lane < number);
    }
  }
}

}  // namespace stretto::sim
