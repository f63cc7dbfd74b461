#include "sim/step_causes.hpp"

#include <algorithm>

namespace stretto::sim {
namespace {

// A computation or movement whose work is replayed may end this many picoseconds earlier or later: each change of its
// rate rounds by half of one (sim/device.cpp).
constexpr Picoseconds kMostRounding = 64;

}  // namespace

StepCauses::StepCauses(const SimInputs& inputs, const Timeline& timeline) : inputs_(inputs), timeline_(timeline) {
  period_ = timeline.step_end - timeline.step_begin;
  // The next step repeats this one within 1e-6 of its length (sim/recorder.hpp).
  tolerance_ = kMostRounding + period_ / 1'000'000;
  row_begin_ = {0};
  for (const BoundProgram& program : inputs.programs)
    row_begin_.push_back(row_begin_.back() + static_cast<std::uint32_t>(program.ops.size()));
  segment_begin_ = {row_begin_.back() * kRowTimes};
  why_not_ = refusal();
  if (!why_not_.empty()) return;
  for (std::uint32_t i = 1; i < row_begin_.back(); ++i)
    if (row(i).end > row(last_).end) last_ = i;
  join_members();
  find_segments();
  find_activities();
}

std::string StepCauses::refusal() const {
  const Costs& costs = inputs_.costs;
  bool interferes = false;
  for (const auto& of : costs.slowdown)
    for (const double slowdown : of) interferes = interferes || slowdown != 0;
  if (costs.cores_per_device != 1 || costs.sleeps_for_cores || interferes || costs.wake != 0 ||
      costs.op_overhead != 0 || costs.timer_overshoot != 0 || inputs_.schedule.placement.ranks_per_device != 1)
    return "the platform is no published GPU";
  if (costs.disturbance.share > 0 || !costs.of_rank.empty()) return "its ranks differ";
  if (timeline_.rows.size() != row_begin_.back() || timeline_.rows.empty()) return "rows are missing";
  return "";
}

StepCauses::Place StepCauses::place_of(std::uint32_t row) const {
  const auto program =
      static_cast<std::uint32_t>(std::upper_bound(row_begin_.begin(), row_begin_.end(), row) - row_begin_.begin() - 1);
  return {program, row - row_begin_[program]};
}

const FlatOp& StepCauses::flat_of(std::uint32_t row) const {
  const Place place = place_of(row);
  const BoundOp& op = inputs_.programs[place.program].ops[place.op];
  const FlatProgram& flat = *inputs_.flat[place.program];
  return flat.ops[flat.lane_begin[op.lane] + op.position];
}

OpId StepCauses::op_of(std::uint32_t row) const {
  const Place place = place_of(row);
  return inputs_.programs[place.program].ops[place.op].op;
}

std::uint32_t StepCauses::first_of_group(std::uint32_t row) const {
  const Place place = place_of(row);
  const BoundProgram& program = inputs_.programs[place.program];
  const BoundOp* op = &program.ops[place.op];
  while (op->joined) op = &program.ops[program.lanes[op->lane][op->position - 1]];
  return row_begin_[place.program] + program.lanes[op->lane][op->position];
}

std::optional<std::uint32_t> StepCauses::last_row_before(Picoseconds time) const {
  std::optional<std::uint32_t> last;
  for (std::uint32_t i = 0; i < row_begin_.back(); ++i)
    if (row(i).end <= time && (!last || row(i).end > row(*last).end)) last = i;
  return last;
}

std::optional<std::uint32_t> StepCauses::twin_of(std::uint32_t number, Picoseconds later) const {
  const Place place = place_of(number);
  const BoundProgram& program = inputs_.programs[place.program];
  const BoundOp& op = program.ops[place.op];
  const std::vector<std::uint32_t>& lane = program.lanes[op.lane];
  for (std::size_t i = op.position + 1; i < lane.size(); ++i) {
    const std::uint32_t other = row_begin_[place.program] + lane[i];
    if (row(other).end > row(number).end + later) break;
    const BoundOp& twin = program.ops[lane[i]];
    if (twin.op == op.op && twin.layer == op.layer && twin.chunk == op.chunk &&
        row(other).end == row(number).end + later)
      return other;
  }
  return std::nullopt;
}

std::optional<StepCauses::Cause> StepCauses::cause_of_ready(std::uint32_t number) const {
  const Place place = place_of(number);
  const BoundProgram& program = inputs_.programs[place.program];
  const BoundOp& op = program.ops[place.op];
  const FlatProgram& flat = *inputs_.flat[place.program];
  const FlatOp& own = flat_of(number);
  Cause latest;
  const auto consider = [&](TimeId time, std::int32_t steps_ago, Picoseconds at) {
    if (latest.at < 0 || at - steps_ago * period_ > latest.at) latest = {time, steps_ago, at - steps_ago * period_};
  };
  const std::vector<std::uint32_t>& lane = program.lanes[op.lane];
  const std::uint32_t before = row_begin_[place.program] + (op.position > 0 ? lane[op.position - 1] : lane.back());
  latest = {id(before, RowTime::end), op.position > 0 ? 0 : 1, row(before).end - (op.position > 0 ? 0 : period_)};
  for (std::uint32_t i = own.wait_begin; i < own.wait_begin + own.wait_count; ++i) {
    const FlatWait& wait = flat.waits[i];
    const std::uint32_t other = row_at(place.program, wait.lane, wait.position);
    const bool is_end = wait.kind == EdgeKind::finish_start;
    consider(id(other, is_end ? RowTime::end : RowTime::start), wait.steps_ago,
             is_end ? row(other).end : row(other).start);
  }
  if (!segments_[place.program].empty()) {
    if (own.segment >= segments_[place.program].size()) return std::nullopt;
    consider(segment_begin_[place.program] + own.segment, 0, segments_[place.program][own.segment].begin + own.issued);
  }
  if (!is_near(latest.at, row(number).ready)) return std::nullopt;
  return latest;
}

std::optional<StepCauses::Cause> StepCauses::cause_of_start(std::uint32_t number) const {
  const TimelineRow& mine = row(number);
  const Cause ready{id(first_of_group(number), RowTime::ready), 0, mine.ready};
  if (mine.start == mine.ready || flat_of(number).kind != FlatKind::compute) return ready;
  // It queued for the device until another computation ended.
  const std::vector<Activity>& computes = computes_[place_of(number).program];
  const auto after =
      std::partition_point(computes.begin(), computes.end(), [&](const Activity& a) { return a.begin < mine.start; });
  if (after == computes.begin() || !is_near((after - 1)->end, mine.start)) return std::nullopt;
  return Cause{id((after - 1)->row, RowTime::end), (after - 1)->steps_ago, mine.start};
}

std::optional<StepCauses::Cause> StepCauses::cause_of_meeting(std::uint32_t number) const {
  Cause latest;
  for (const std::uint32_t member : groups_[group_[number]])
    if (row(member).ready > latest.at) latest = {id(first_of_group(member), RowTime::ready), 0, row(member).ready};
  if (!is_near(latest.at, row(number).transfer)) return std::nullopt;
  return latest;
}

// Returns the time from which a rank moves the bytes of its communication.
StepCauses::Cause StepCauses::cause_of_moving(std::uint32_t number) const {
  const Cause meet{id(number, RowTime::meet), 0, row(number).transfer};
  if (!is_receive(number)) return meet;
  // The receiver serves the messages of a group one after the other.
  const Place place = place_of(number);
  const BoundProgram& program = inputs_.programs[place.program];
  for (const BoundOp* op = &program.ops[place.op]; op->joined;) {
    op = &program.ops[program.lanes[op->lane][op->position - 1]];
    const std::uint32_t before = row_at(place.program, op->lane, op->position);
    if (!is_receive(before)) continue;
    return moved_[before] > meet.at ? Cause{id(before, RowTime::moved), 0, moved_[before]} : meet;
  }
  return meet;
}

// Returns what ended a communication: the movement of the last member, or of the last message of the group.
std::optional<StepCauses::Cause> StepCauses::cause_of_complete(std::uint32_t number) const {
  const Cause ready{id(first_of_group(number), RowTime::ready), 0, row(number).ready};
  if (group_[number] == kAlone) return ready;
  std::vector<std::uint32_t> movers;
  if (flat_of(number).kind == FlatKind::collective) {
    movers = groups_[group_[number]];
  } else {
    const Place place = place_of(number);
    const BoundProgram& program = inputs_.programs[place.program];
    const std::uint32_t first = first_of_group(number);
    const BoundOp& op = program.ops[first - row_begin_[place.program]];
    for (std::uint32_t i = 0; i < flat_of(first).group; ++i)
      movers.push_back(groups_[group_[row_at(place.program, op.lane, op.position + i)]].back());
  }
  std::uint32_t last = movers.front();
  for (const std::uint32_t mover : movers)
    if (moved_[mover] > moved_[last]) last = mover;
  if (!is_near(moved_[last], row(number).end)) return std::nullopt;
  return Cause{id(last, RowTime::moved), 0, moved_[last]};
}

bool StepCauses::explain(TimeId time, Explanation& result) const {
  result.times.clear();
  result.parts.clear();
  const auto pass = [&](const std::optional<Cause>& cause) {
    if (cause) result.times.push_back({cause->time, cause->steps_ago, 1});
    return cause.has_value();
  };
  if (time >= segment_begin_.front()) {
    const auto program = static_cast<std::uint32_t>(
        std::upper_bound(segment_begin_.begin(), segment_begin_.end(), time) - segment_begin_.begin() - 1);
    const std::uint32_t segment = time - segment_begin_[program];
    if (segment > 0 && !segments_[program][segment].waited)
      result.parts.push_back({Explanation::Cost::awaited, segments_[program][segment].ended_by, {}, 1});
    return pass(cause_of_segment(program, segment));
  }
  const std::uint32_t number = time / kRowTimes;
  const bool computes = flat_of(number).kind == FlatKind::compute;
  switch (static_cast<RowTime>(time % kRowTimes)) {
    case RowTime::ready: {
      const std::optional<Cause> cause = cause_of_ready(number);
      if (cause && cause->time >= segment_begin_.front())
        result.parts.push_back({Explanation::Cost::issued, number, {}, 1});
      return pass(cause);
    }
    case RowTime::start:
      return pass(cause_of_start(number));
    case RowTime::meet:
      return pass(cause_of_meeting(number));
    case RowTime::end:
      if (!computes) return pass(cause_of_complete(number));
      [[fallthrough]];
    case RowTime::moved:
      explain_work(number, result);
      return true;
  }
  return false;
}

// Returns what a segment of the host begins with: the lanes that ended the step before, or the end of an operation, or
// the segment before.
StepCauses::Cause StepCauses::cause_of_segment(std::uint32_t program, std::uint32_t number) const {
  if (number > 0) {
    const Segment& segment = segments_[program][number];
    return segment.waited ? Cause{id(segment.ended_by, RowTime::end), 0, segment.begin}
                          : Cause{segment_begin_[program] + flat_of(segment.ended_by).segment, 0, segment.begin};
  }
  Cause latest;
  for (const auto& lane : inputs_.programs[program].lanes) {
    if (lane.empty()) continue;
    const std::uint32_t other = row_begin_[program] + lane.back();
    if (row(other).end > latest.at) latest = {id(other, RowTime::end), 1, row(other).end};
  }
  return latest;
}

}  // namespace stretto::sim
