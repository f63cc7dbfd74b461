#include "sim/call_cache.hpp"

#include <algorithm>
#include <utility>

namespace stretto::sim {
namespace {

constexpr std::size_t kMostRecordings = 8;  // of a shape: calls of a step come after few different ones
constexpr int kMostFailures = 16;           // attempts to record a shape

// Returns the operations of a call from `op` on, as a call: the lane of `op` comes first. `lane_of` has the lane of
// each operation.
SoloShape rest_of(const SoloShape& shape, std::uint32_t op, const std::vector<LaneId>& lane_of) {
  SoloShape rest;
  rest.last_lane = shape.last_lane;
  rest.count = shape.count - op;
  for (std::uint32_t i = op; i < shape.count; ++i) {
    const auto at = std::find_if(rest.lanes.begin(), rest.lanes.end(),
                                 [&](const SoloShape::OnLane& on) { return on.lane == lane_of[i]; });
    if (at == rest.lanes.end())
      rest.lanes.push_back({lane_of[i], i - op, 1});
    else
      ++at->count;
  }
  return rest;
}

}  // namespace

void SoloRun::write_rows(TimelineRow* rows, std::uint32_t count) const {
  const std::uint32_t from = recording->entries[entry].op;
  const Picoseconds zero = at(0);
  rows += first_op;
  for (std::uint32_t i = 0; i < count; ++i) {
    const TimelineRow& row = recording->rows[from + i];
    *rows++ = {row.rank,       first_op + i, row.ready + zero, row.start + zero, row.transfer + zero,
               row.end + zero, row.waited};
  }
}

CallCache::CallCache(const SimInputs& inputs, Lanes& lanes, Devices& devices, EventHeap& events, bool is_open)
    : inputs_(inputs),
      lanes_(lanes),
      devices_(devices),
      events_(events),
      runs_(inputs.programs.size()),
      recordings_(inputs.programs.size()),
      stepped_(inputs.programs.size()),
      tapes_(inputs.programs.size()),
      rank_on_(devices.count(), kNone) {
  for (std::size_t rank = 0; is_open && rank < recordings_.size(); ++rank)
    recordings_[rank].resize(inputs.flat[rank]->shapes.size());
}

Picoseconds CallCache::issue_time(std::uint32_t rank, std::uint32_t op) const {
  const BoundOp& bound = inputs_.programs[rank].ops[op];
  const std::uint32_t lane = lanes_.first_of(rank) + bound.lane;
  return lanes_.issue_time(lane, lanes_[lane].ops[bound.position]);
}

bool CallCache::is_of(const SoloShape& shape, std::uint32_t number) const {
  const LaneId lane = number % lanes_.per_rank();
  return std::any_of(shape.lanes.begin(), shape.lanes.end(),
                     [&](const SoloShape::OnLane& on) { return on.lane == lane; });
}

// Returns whether the wait is for an operation inside the call, and not for the end of its last one.
bool CallCache::is_inside(const SoloShape& shape, const UnmetWait& wait) const {
  const std::uint64_t finished = lanes_[wait.on].finished;
  for (const SoloShape::OnLane& on : shape.lanes) {
    if (on.lane != wait.on % lanes_.per_rank()) continue;
    const bool is_end = on.lane == shape.last_lane && wait.kind == EdgeKind::finish_start;
    return wait.count > finished && wait.count < finished + on.count + !is_end;
  }
  return false;
}

// Returns whether no activity runs on the lane's device, and the rank has no other call.
bool CallCache::is_undisturbed(std::uint32_t number) const {
  if (runs_[lanes_.rank_of(number)].shape != nullptr) return false;
  const std::uint32_t device = devices_.device_of(number);
  return !devices_.is_contended(number) || (devices_.is_idle(device) && rank_on_[device] == kNone);
}

// Returns whether the rank's lanes are in the state in which the call was recorded: every lane of the call waits for
// the call, and no other lane waits for an operation inside. The caller has asked is_undisturbed().
bool CallCache::can_begin(std::uint32_t number, const SoloShape& shape, std::uint32_t first_op, bool is_whole) const {
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  for (const SoloShape::OnLane& on : shape.lanes) {
    const Cursor& lane = lanes_[base + on.lane];
    if (base + on.lane == number) continue;
    if (lane.stage != LaneStage::blocked || (is_whole && lane.wait != 0) || lane.step != lanes_[number].step ||
        lane.position != inputs_.programs[rank].ops[first_op + on.first].position)
      return false;
    if (lane.blocked_on == kNone) continue;               // the lane has just reached it
    if (!lanes_.is_listed(base + on.lane)) return false;  // the lane is just being examined
  }
  for (std::uint32_t other = base; other < base + lanes_.per_rank(); ++other) {
    const Cursor& lane = lanes_[other];
    if (lane.stage == LaneStage::blocked && lane.blocked_on != kNone &&
        is_inside(shape, {lane.blocked_on, lane.blocked_kind, lane.blocked_until}) && !is_of(shape, other))
      return false;
  }
  return true;
}

// Returns whether the lanes have come to the entry, and the host has issued it, as the recording needs it.
// `entry_ready`: the time of the recording at which the entry is ready.
bool CallCache::allows(const SoloRecording::Entry& entry, Picoseconds entry_ready, std::uint32_t number,
                       Picoseconds ready) const {
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  if (lanes_.has_host() && issue_time(rank, lanes_[number].current().op) > ready + entry.host_slack) return false;
  for (std::size_t i = 1; i < entry.rest.lanes.size(); ++i)
    if (!entry.arrivals[i].allows(lanes_[base + entry.rest.lanes[i].lane].reached - ready + entry_ready)) return false;
  return true;
}

bool CallCache::begin_call(std::uint32_t number, Picoseconds ready) {
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  if (recordings_[rank].empty()) return false;
  const FlatOp& op = lanes_[number].current();
  const SoloShape& shape = lanes_[number].program->shapes[op.shape - 1u];
  Recordings& recordings = recordings_[rank][op.shape - 1u];
  if (!recordings.all.empty()) stepped_[rank] = {op.op, shape.count, static_cast<std::uint16_t>(op.shape - 1u)};
  if (!is_undisturbed(number) || !can_begin(number, shape, op.op, true)) return false;
  for (const SoloRecording& recording : recordings.all)
    if (allows(recording.entries.front(), 0, number, ready)) return play(number, ready, recording, 0), true;
  if (recordings.all.size() == kMostRecordings || recordings.failed == kMostFailures) return false;
  runs_[rank] = {&shape, nullptr, 0, op.op, ready};
  if (devices_.is_contended(number)) rank_on_[devices_.device_of(number)] = rank;
  tapes_[rank].shape = static_cast<std::uint16_t>(op.shape - 1u);
  tapes_[rank].rows.assign(shape.count, {});
  tapes_[rank].reached.clear();
  for (const SoloShape::OnLane& on : shape.lanes) tapes_[rank].reached.push_back(lanes_[base + on.lane].reached);
  return false;
}

bool CallCache::begin_rest(std::uint32_t number, Picoseconds ready) {
  if (!is_undisturbed(number)) return false;
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  const Stepped& call = stepped_[rank];
  const std::uint32_t first_op = lanes_[number].current().op;
  const SoloShape& shape = lanes_[number].program->shapes[call.shape];
  for (const SoloRecording& recording : recordings_[rank][call.shape].all) {
    const auto entry = std::lower_bound(recording.entries.begin(), recording.entries.end(), first_op - call.first_op,
                                        [](const SoloRecording::Entry& e, std::uint32_t op) { return e.op < op; });
    if (entry == recording.entries.end() || entry->op != first_op - call.first_op) continue;
    if (!allows(*entry, recording.rows[entry->op].ready, number, ready)) continue;
    // All operations before the entry must have ended: on lanes of the rest this is so when they have come to it.
    for (const SoloShape::OnLane& on : shape.lanes) {
      if (is_of(entry->rest, base + on.lane)) continue;
      const Cursor& lane = lanes_[base + on.lane];
      const std::uint32_t last = inputs_.programs[rank].ops[call.first_op + on.first].position + on.count - 1;
      if (lane.step == lanes_[number].step && lane.position <= last) return false;
    }
    if (!can_begin(number, entry->rest, first_op, false)) return false;
    play(number, ready, recording, static_cast<std::size_t>(entry - recording.entries.begin()));
    return true;
  }
  return false;
}

void CallCache::play(std::uint32_t number, Picoseconds ready, const SoloRecording& recording, std::size_t entry) {
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  const SoloShape& shape = recording.entries[entry].rest;
  runs_[rank] = {&shape, &recording, entry, lanes_[number].current().op, ready};
  if (devices_.is_contended(number)) rank_on_[devices_.device_of(number)] = rank;
  for (const SoloShape::OnLane& on : shape.lanes) {
    lanes_.unblock(base + on.lane);
    lanes_[base + on.lane].stage = LaneStage::playing;
  }
  events_.schedule(base + shape.last_lane, runs_[rank].at(recording.rows.back().end), EventKind::finish);
}

void CallCache::record(std::uint32_t rank, std::uint32_t op, const TimelineRow& row) {
  const SoloRun& run = runs_[rank];
  if (op - run.first_op >= run.shape->count) return;
  std::vector<TimelineRow>& rows = tapes_[rank].rows;
  const std::uint32_t at = op - run.first_op;
  rows[at] = {
      row.rank,  at, row.ready - run.begin, row.start - run.begin, row.transfer - run.begin, row.end - run.begin,
      row.waited};
  if (at + 1 < rows.size()) return;
  // The last row. A row that is missing, or has not ended, has 0 as its end.
  const bool is_whole = std::all_of(rows.begin(), rows.end(),
                                    [&](const TimelineRow& r) { return r.end > 0 && r.end <= rows.back().end; });
  SoloRecording recording;
  if (is_whole) recording.entries = entries_of(rank);
  Recordings& recordings = recordings_[rank][tapes_[rank].shape];
  if (recording.entries.empty()) {
    ++recordings.failed;
  } else {
    recording.rows = std::move(rows);
    recordings.all.push_back(std::move(recording));
  }
  take(rank);
}

// Returns the entries of the call that has been recorded; none where the host delayed one of its operations.
std::vector<SoloRecording::Entry> CallCache::entries_of(std::uint32_t rank) const {
  const SoloRun& run = runs_[rank];
  const SoloShape& shape = *run.shape;
  const std::vector<TimelineRow>& rows = tapes_[rank].rows;
  const auto count = static_cast<std::uint32_t>(rows.size());
  std::vector<LaneId> lane_of(count);
  std::vector<SoloRecording::Arrival> arrivals(count);
  std::vector<Picoseconds> reached(lanes_.per_rank());  // [lane] when it came to its next operation
  for (std::size_t i = 0; i < shape.lanes.size(); ++i)
    reached[shape.lanes[i].lane] = tapes_[rank].reached[i] - run.begin;
  for (std::uint32_t i = 0; i < count; ++i) {
    lane_of[i] = inputs_.programs[rank].ops[run.first_op + i].lane;
    const Picoseconds woken = rows[i].ready - inputs_.costs.wake, came = reached[lane_of[i]];
    arrivals[i] = came < woken ? SoloRecording::Arrival{woken, true} : SoloRecording::Arrival{came, false};
    reached[lane_of[i]] = rows[i].end + inputs_.costs.op_overhead;
  }
  // [operation] the most by which the host may be late after the operation
  std::vector<Picoseconds> slack(count, Picoseconds{1} << 60);
  if (lanes_.has_host()) {
    Picoseconds least = Picoseconds{1} << 60;
    for (std::uint32_t i = count; i-- > 0;) {
      const Picoseconds issued = issue_time(rank, run.first_op + i);
      if (i > 0 && issued >= run.begin + rows[i].ready) return {};
      slack[i] = least - (rows[i].ready - issued);
      least = std::min(least, rows[i].ready - issued);
    }
  }
  std::vector<SoloRecording::Entry> entries;
  Picoseconds ended = 0;       // the latest end of an operation before the entry
  std::uint32_t open_end = 0;  // the last operation to which one before the entry sends, or from which it receives
  for (std::uint32_t k = 0; k < count; ++k) {
    if (ended <= rows[k].ready && (k == 0 || open_end < k)) {
      SoloRecording::Entry entry{k, k == 0 ? shape : rest_of(shape, k, lane_of), {}, slack[k]};
      bool is_entry = true;
      for (const SoloShape::OnLane& on : entry.rest.lanes) {
        const SoloRecording::Arrival& arrival = arrivals[k + on.first];
        // At the beginning, can_begin() sees that the lane waits; later the recording must say so.
        is_entry = is_entry && (k == 0 || on.first == 0 || (arrival.sleeps && arrival.at > rows[k].ready));
        entry.arrivals.push_back(arrival);
      }
      if (is_entry) entries.push_back(std::move(entry));
    }
    ended = std::max(ended, rows[k].end);
    open_end = std::max(open_end, shape.other_end[k]);
  }
  return entries;
}

SoloRun CallCache::take(std::uint32_t rank) {
  std::uint32_t& on_device = rank_on_[devices_.device_of(lanes_.first_of(rank))];
  if (on_device == rank) on_device = kNone;
  return std::exchange(runs_[rank], {});
}

// The events of the stopped call lie in the past and are handled before any other: they concern only this rank.
SoloRun CallCache::stop(std::uint32_t rank) {
  const SoloRun run = take(rank);
  const std::uint32_t base = lanes_.first_of(rank);
  events_.cancel(base + run.shape->last_lane);
  for (const SoloShape::OnLane& on : run.shape->lanes) lanes_[base + on.lane].stage = LaneStage::blocked;
  return run;
}

std::uint32_t CallCache::disturbed_by(std::uint32_t number) {
  const std::uint32_t rank = rank_on_[devices_.device_of(number)];
  if (rank == kNone || (rank == lanes_.rank_of(number) && is_of(*runs_[rank].shape, number))) return kNone;
  if (runs_[rank].plays()) return rank;
  take(rank);  // the recorded call did not run undisturbed
  return kNone;
}

std::int64_t CallCache::finished_before(Picoseconds until, std::uint32_t number) const {
  std::int64_t finished = 0;
  for (std::uint32_t rank = 0; rank < runs_.size(); ++rank) {
    const SoloRun& run = runs_[rank];
    for (std::uint32_t op = run.first_op; run.plays() && op < run.first_op + run.shape->count; ++op) {
      const std::uint32_t lane = lanes_.first_of(rank) + inputs_.programs[rank].ops[op].lane;
      const Picoseconds end = run.at(run.recorded(op).end);
      finished += end < until || (end == until && lane < number);
    }
  }
  return finished;
}

}  // namespace stretto::sim
