#include "sim/repeated_step.hpp"

#include <algorithm>

namespace stretto::sim {
namespace {

// The part of the step after which it is asked first; then after twice as much, and so on.
constexpr std::uint32_t kFirstAsked = 32;
constexpr std::uint32_t kShort = 64;  // steps that are as short are not worth asking

TimelineRow later(TimelineRow row, Picoseconds shift) {
  for (Picoseconds* time : {&row.ready, &row.start, &row.transfer, &row.end}) *time += shift;
  return row;
}

bool are_equal(const TimelineRow& a, const TimelineRow& b) {
  return a.ready == b.ready && a.start == b.start && a.transfer == b.transfer && a.end == b.end && a.waited == b.waited;
}

}  // namespace

RepeatedStep::RepeatedStep(const SimInputs& inputs, const Lanes& lanes, const CallCache& player, StepRecorder& recorder,
                           bool is_open)
    : inputs_(inputs), lanes_(lanes), player_(player), recorder_(recorder) {
  if (!is_open) return;
  watched_ = 0;
  for (std::uint32_t lane = 1; lane < std::min(lanes.size(), lanes.per_rank()); ++lane)
    if (lanes[lane].length > lanes[watched_].length) watched_ = lane;
  first_asked_ = lanes[watched_].length / kFirstAsked;
  if (lanes[watched_].length <= kShort) watched_ = kNone;
}

bool RepeatedStep::is_repeated(Picoseconds now) {
  is_due_ = false;
  const Cursor& lane = lanes_[watched_];
  if (lane.step != step_ || lane.position == 0) return false;  // it has gone on
  while (next_ <= lane.position) next_ *= 2;
  const std::uint32_t last = lane.ops[lane.position - 1].op, rank = lanes_.rank_of(watched_);
  const Picoseconds shift = recorder_.rows_of(step_, rank)[last].end - recorder_.rows_of(step_ - 1, rank)[last].end;
  if (!is_like_then(now, shift)) return false;
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& at = lanes_[number];
    TimelineRow* rows = recorder_.rows_of(step_, lanes_.rank_of(number));
    const TimelineRow* before = recorder_.rows_of(step_ - 1, lanes_.rank_of(number));
    for (std::uint32_t i = at.position; i < at.length; ++i) rows[at.ops[i].op] = later(before[at.ops[i].op], shift);
  }
  // A step from where hosts begin apart on may be the first that the next one repeats.
  if (lanes_.has_host() && !recorder_.would_repeat(step_, shift)) return false;
  if (lanes_.has_host()) ahead_ = count_ahead(shift);
  recorder_.end_by_repeating(step_, shift);
  return true;
}

// Returns whether every operation of the rank that is not ready yet will be issued `shift` later than in the step
// before, or is issued before it is ready in both.
bool RepeatedStep::issues_like_then(std::uint32_t rank, Picoseconds shift) const {
  const std::vector<Picoseconds>&begins = lanes_.host_of(rank).begins, &before = lanes_.host_of(rank).before;
  if (before.size() < begins.size()) return false;
  const TimelineRow* rows = recorder_.rows_of(step_ - 1, rank);
  const std::uint32_t first = lanes_.first_of(rank);
  for (std::uint32_t number = first; number < first + lanes_.per_rank(); ++number) {
    const Cursor& lane = lanes_[number];
    const bool is_ready = lane.stage != LaneStage::blocked && lane.stage != LaneStage::playing;
    for (std::uint32_t i = lane.position; i < lane.length; ++i) {
      const FlatOp& op = lane.ops[i];
      // Segments that have not begun will begin at equal times, as is checked for the operation that they wait for.
      if (op.segment >= begins.size()) break;
      if (begins[op.segment] == before[op.segment] + shift) continue;
      const TimelineRow& then = rows[op.op];
      const bool is_issued_before =
          before[op.segment] + op.issued < then.ready && begins[op.segment] + op.issued <= then.ready + shift;
      if (op.group > 0 && !(is_ready && i == lane.position) && !is_issued_before) return false;
      const bool is_awaited =
          before[op.segment] + op.awaited <= then.end && begins[op.segment] + op.awaited <= then.end + shift;
      if (op.ends_segment && !is_awaited) return false;
    }
  }
  return true;
}

std::int64_t RepeatedStep::count_ahead(Picoseconds shift) {
  const Picoseconds end = recorder_.end(step_ - 1) + shift;
  std::uint32_t last = 0;  // the last lane to end the step
  std::int64_t ahead = 0;
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& lane = lanes_[number];
    if (lane.length > 0 && recorder_.rows_of(step_, lanes_.rank_of(number))[lane.ops[lane.length - 1].op].end == end)
      last = number;
  }
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& lane = lanes_[number];
    const TimelineRow* rows = recorder_.rows_of(step_, lanes_.rank_of(number));
    for (std::uint32_t i = 0; i < lane.length; ++i, ++ahead)
      if (const Picoseconds at = rows[lane.ops[i].op].end + shift; at > end || (at == end && number >= last)) break;
  }
  return ahead;
}

bool RepeatedStep::is_like_then(Picoseconds now, Picoseconds shift) {
  const Picoseconds then = now - shift;
  // The most by which a lane begins after the end of the operation that it waited for.
  const Picoseconds delay = inputs_.costs.wake + inputs_.costs.op_overhead;
  Picoseconds since = now;  // the first of the active operations became ready
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& lane = lanes_[number];
    if (lane.length == 0) continue;
    if (lane.step != step_) return false;
    const TimelineRow* before = recorder_.rows_of(step_ - 1, lanes_.rank_of(number));
    if (lane.stage == LaneStage::playing) {
      const SoloRun& run = player_.run(lanes_.rank_of(number));
      if (run.begin != before[run.first_op].ready + shift) return false;
      since = std::min(since, run.begin);
      continue;
    }
    const Picoseconds ready = before[lane.current().op].ready;
    if (lane.stage == LaneStage::blocked) {
      if (ready <= then + delay) return false;
      continue;
    }
    if (lane.ready != ready + shift) return false;
    since = std::min(since, lane.ready);
  }
  since -= delay;
  // No other step is active since then: neither the one before in this one, nor an earlier one in the one before.
  const Picoseconds earlier_end = step_ == 1 ? 0 : recorder_.end(step_ - 2);
  if (recorder_.end(step_ - 1) > since || earlier_end > since - shift) return false;
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& lane = lanes_[number];
    const TimelineRow* rows = recorder_.rows_of(step_, lanes_.rank_of(number));
    const TimelineRow* before = recorder_.rows_of(step_ - 1, lanes_.rank_of(number));
    for (std::uint32_t i = lane.position; i-- > 0;) {
      const std::uint32_t op = lane.ops[i].op;
      // An operation that has ended before had ended before then, too, with those before it.
      if (rows[op].end <= since && before[op].end <= since - shift) break;
      if (!are_equal(rows[op], later(before[op], shift))) return false;
    }
  }
  for (std::uint32_t rank = 0; lanes_.has_host() && rank < lanes_.size() / lanes_.per_rank(); ++rank)
    if (!issues_like_then(rank, shift)) return false;
  return true;
}

}  // namespace stretto::sim
