#include "sim/solo_player.hpp"

#include <algorithm>

namespace stretto::sim {

void SoloRun::write_rows(TimelineRow* rows) const {
  rows += first_op;
  for (const TimelineRow& row : recording->rows)
    *rows++ = {row.rank,        first_op + row.op, row.ready + begin, row.start + begin, row.transfer + begin,
               row.end + begin, row.waited};
}

SoloPlayer::SoloPlayer(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, bool is_open)
    : inputs_(inputs),
      lanes_(lanes),
      devices_(devices),
      events_(events),
      runs_(inputs.programs.size()),
      recordings_(inputs.programs.size()),
      rank_on_(devices.count(), kNone) {
  for (std::size_t rank = 0; is_open && rank < recordings_.size(); ++rank)
    recordings_[rank].resize(inputs.flat[rank]->shapes.size());
}

Picoseconds SoloPlayer::issue_time(std::uint32_t rank, std::uint32_t op) const {
  const BoundOp& bound = inputs_.programs[rank].ops[op];
  const std::uint32_t lane = lanes_.first_of(rank) + bound.lane;
  return lanes_.issue_time(lane, lanes_[lane].ops[bound.position]);
}

bool SoloPlayer::is_of(const SoloRun& run, std::uint32_t number) const {
  const LaneId lane = number % lanes_.per_rank();
  return std::any_of(run.shape->lanes.begin(), run.shape->lanes.end(),
                     [&](const SoloShape::OnLane& on) { return on.lane == lane; });
}

// Returns whether the wait is for an operation inside the call, and not for the end of its last one.
bool SoloPlayer::is_inside(const SoloRun& run, const UnmetWait& wait) const {
  const std::uint64_t finished = lanes_[wait.on].finished;
  for (const SoloShape::OnLane& on : run.shape->lanes) {
    if (on.lane != wait.on % lanes_.per_rank()) continue;
    const bool is_end = on.lane == run.shape->last_lane && wait.kind == EdgeKind::finish_start;
    return wait.count > finished && wait.count < finished + on.count + !is_end;
  }
  return false;
}

// Returns whether the rank and its device are in the state in which the call was recorded: no activity runs on the
// device, every lane of the call waits for the call, and no other lane waits for an operation inside.
bool SoloPlayer::can_begin(std::uint32_t number, const SoloShape& shape, std::uint32_t first_op) const {
  const std::uint32_t rank = lanes_.rank_of(number), device = devices_.device_of(number);
  if (runs_[rank].shape) return false;
  if (devices_.is_contended(number) && (!devices_.is_idle(device) || rank_on_[device] != kNone)) return false;
  SoloRun run;
  run.shape = &shape;
  const std::uint32_t base = lanes_.first_of(rank);
  for (const SoloShape::OnLane& on : shape.lanes) {
    const Cursor& lane = lanes_[base + on.lane];
    if (base + on.lane == number) continue;
    if (lane.stage != LaneStage::blocked || lane.wait != 0 || lane.step != lanes_[number].step ||
        lane.position != inputs_.programs[rank].ops[first_op + on.first].position)
      return false;
    if (lane.blocked_on == kNone) continue;               // the lane has just reached it
    if (!lanes_.is_listed(base + on.lane)) return false;  // the lane is just being examined
  }
  for (std::uint32_t other = base; other < base + lanes_.per_rank(); ++other) {
    const Cursor& lane = lanes_[other];
    if (lane.stage == LaneStage::blocked && lane.blocked_on != kNone &&
        is_inside(run, {lane.blocked_on, lane.blocked_kind, lane.blocked_until}) && !is_of(run, other))
      return false;
  }
  return true;
}

bool SoloPlayer::begin(std::uint32_t number, Picoseconds ready) {
  const std::uint32_t rank = lanes_.rank_of(number);
  if (recordings_[rank].empty()) return false;
  const FlatOp& op = lanes_[number].current();
  const std::size_t index = op.shape - 1u;
  const SoloShape& shape = lanes_[number].program->shapes[index];
  SoloRecording& recording = recordings_[rank][index];
  if (!can_begin(number, shape, op.op)) return false;
  if (lanes_.has_host() && recording.is_complete && issue_time(rank, op.op) > ready + recording.host_slack)
    return false;
  const std::uint32_t base = lanes_.first_of(rank);
  for (std::size_t i = 1; i < shape.lanes.size() && recording.is_complete; ++i)
    if (lanes_[base + shape.lanes[i].lane].reached >= ready + recording.slept_until[i]) return false;

  runs_[rank] = {&shape, &recording, op.op, ready, recording.is_complete};
  if (devices_.is_contended(number)) rank_on_[devices_.device_of(number)] = rank;
  if (!recording.is_complete) {
    recording.rows.assign(shape.count, {});
    recording.slept_until.clear();
    for (const SoloShape::OnLane& on : shape.lanes) recording.slept_until.push_back(lanes_[base + on.lane].reached);
    return false;
  }
  for (const SoloShape::OnLane& on : shape.lanes) {
    lanes_.unblock(base + on.lane);
    lanes_[base + on.lane].stage = LaneStage::playing;
  }
  events_.schedule(base + shape.last_lane, ready + recording.rows.back().end, EventKind::finish);
  return true;
}

void SoloPlayer::record(std::uint32_t rank, std::uint32_t op, const TimelineRow& row) {
  SoloRun& run = runs_[rank];
  if (op < run.first_op || op - run.first_op >= run.shape->count) return;
  std::vector<TimelineRow>& rows = run.recording->rows;
  const std::uint32_t at = op - run.first_op;
  rows[at] = {
      row.rank,  at, row.ready - run.begin, row.start - run.begin, row.transfer - run.begin, row.end - run.begin,
      row.waited};
  if (at + 1 < rows.size()) return;
  // The last row. A row that is missing, or has not ended, has 0 as its end.
  bool is_good = std::all_of(rows.begin(), rows.end(),
                             [&](const TimelineRow& r) { return r.end > 0 && r.end <= rows.back().end; });
  // Lanes must have slept until the call woke them: their time of arrival then does not matter.
  for (std::size_t i = 1; i < run.shape->lanes.size(); ++i) {
    const Picoseconds reached = run.recording->slept_until[i];
    run.recording->slept_until[i] = rows[run.shape->lanes[i].first].ready - inputs_.costs.wake;
    is_good = is_good && reached < run.begin + run.recording->slept_until[i];
  }
  if (lanes_.has_host()) {
    const Picoseconds first = issue_time(rank, run.first_op);
    run.recording->host_slack = Picoseconds{1} << 60;
    for (std::uint32_t i = 1; i < rows.size(); ++i) {
      const Picoseconds issued = issue_time(rank, run.first_op + i);
      is_good = is_good && issued < run.begin + rows[i].ready;
      run.recording->host_slack = std::min(run.recording->host_slack, rows[i].ready - (issued - first));
    }
  }
  run.recording->is_complete = is_good;
  take(rank);
}

SoloRun SoloPlayer::take(std::uint32_t rank) {
  std::uint32_t& on_device = rank_on_[devices_.device_of(lanes_.first_of(rank))];
  if (on_device == rank) on_device = kNone;
  return std::exchange(runs_[rank], {});
}

// The events of the stopped call lie in the past and are handled before any other: they concern only this rank.
SoloRun SoloPlayer::stop(std::uint32_t rank) {
  const SoloRun run = take(rank);
  const std::uint32_t base = lanes_.first_of(rank);
  events_.cancel(base + run.shape->last_lane);
  for (const SoloShape::OnLane& on : run.shape->lanes) lanes_[base + on.lane].stage = LaneStage::blocked;
  return run;
}

std::uint32_t SoloPlayer::disturbed_by(std::uint32_t number) {
  const std::uint32_t rank = rank_on_[devices_.device_of(number)];
  if (rank == kNone || (rank == lanes_.rank_of(number) && is_of(runs_[rank], number))) return kNone;
  if (runs_[rank].plays) return rank;
  take(rank);  // the recorded call did not run undisturbed
  return kNone;
}

std::int64_t SoloPlayer::finished_before(Picoseconds until, std::uint32_t number) const {
  std::int64_t finished = 0;
  for (std::uint32_t rank = 0; rank < runs_.size(); ++rank) {
    const SoloRun& run = runs_[rank];
    if (!run.plays) continue;
    for (const TimelineRow& row : run.recording->rows) {
      const std::uint32_t lane = lanes_.first_of(rank) + inputs_.programs[rank].ops[run.first_op + row.op].lane;
      const Picoseconds end = run.begin + row.end;
      finished += end < until || (end == until && lane < number);
    }
  }
  return finished;
}

}  // namespace stretto::sim
