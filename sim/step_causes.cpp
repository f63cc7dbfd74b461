#include "sim/step_causes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace stretto::sim {
namespace {

// A computation or movement whose work is replayed may end so many picoseconds elsewhere: each change of its rate
// rounds by half of one (sim/device.cpp).
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

// ---- who meets whom, and what is concurrent ----

void StepCauses::join_members() {
  group_.assign(row_begin_.back(), kAlone);
  const Partners& partners = inputs_.partners;
  // The n-th operations of the members of an instance on one lane meet, and so do the n-th send and receive of a route.
  std::map<std::tuple<LaneId, std::uint32_t, std::uint32_t>, std::uint32_t> met;  // lane, instance, number → groups_
  struct Ends {
    std::vector<std::pair<Picoseconds, std::uint32_t>> sends, receives;  // (posted, row)
  };
  std::map<std::uint32_t, Ends> routes;
  for (std::uint32_t p = 0; p < inputs_.programs.size(); ++p) {
    const BoundProgram& program = inputs_.programs[p];
    for (LaneId lane = 0; lane < program.lanes.size(); ++lane) {
      std::map<std::uint32_t, std::uint32_t> seen;  // operations of an instance
      for (std::uint32_t position = 0; position < program.lanes[lane].size(); ++position) {
        const std::uint32_t number = row_at(p, lane, position);
        const FlatOp& op = flat_of(number);
        if (op.kind == FlatKind::compute) continue;
        if (op.kind != FlatKind::collective) {
          Ends& ends = routes[partners.route_of[p][op.id]];
          (op.kind == FlatKind::send ? ends.sends : ends.receives).emplace_back(row(number).start, number);
          continue;
        }
        const std::uint32_t instance = partners.instance_of[p][static_cast<std::size_t>(op.communicator)];
        if (partners.instances[instance].size == 1) continue;
        const auto [at, is_new] =
            met.try_emplace({lane, instance, seen[instance]++}, static_cast<std::uint32_t>(groups_.size()));
        if (is_new) groups_.emplace_back();
        groups_[at->second].push_back(number);
        group_[number] = at->second;
      }
    }
  }
  for (auto& [route, ends] : routes) {
    std::stable_sort(ends.sends.begin(), ends.sends.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::stable_sort(ends.receives.begin(), ends.receives.end(), [](auto& a, auto& b) { return a.first < b.first; });
    if (ends.sends.size() != ends.receives.size()) {
      why_not_ = "a message has one end";
      return;
    }
    for (std::size_t i = 0; i < ends.sends.size(); ++i) {
      for (const std::uint32_t end : {ends.sends[i].second, ends.receives[i].second})
        group_[end] = static_cast<std::uint32_t>(groups_.size());
      groups_.push_back({ends.sends[i].second, ends.receives[i].second});
    }
  }
}

void StepCauses::find_segments() {
  segments_.resize(inputs_.programs.size());
  for (std::uint32_t p = 0; p < inputs_.programs.size(); ++p) {
    if (!inputs_.costs.host.issue.empty()) {
      Picoseconds begin = 0;
      for (const auto& lane : inputs_.programs[p].lanes)
        if (!lane.empty()) begin = std::max(begin, row(row_begin_[p] + lane.back()).end - period_);
      segments_[p].push_back({begin, 0, false});
      for (std::uint32_t number = row_begin_[p]; number < row_begin_[p + 1]; ++number) {
        const FlatOp& op = flat_of(number);
        if (!op.ends_segment) continue;
        const Picoseconds free = segments_[p][op.segment].begin + op.awaited;
        segments_[p].push_back({std::max(free, row(number).end), number, row(number).end > free});
      }
    }
    segment_begin_.push_back(segment_begin_.back() + static_cast<std::uint32_t>(segments_[p].size()));
  }
}

// Adds the activities of the step before and of the next one that reach into this one.
void StepCauses::add_neighbours(std::vector<Activity>& activities) const {
  const auto by_begin = [](const Activity& a, const Activity& b) {
    return std::tie(a.begin, a.row) < std::tie(b.begin, b.row);
  };
  if (activities.empty()) return;
  std::sort(activities.begin(), activities.end(), by_begin);
  Picoseconds first = activities.front().begin, end = 0;
  for (std::uint32_t number = 0; number < row_begin_.back(); ++number)
    first = std::min(first, row(number).ready), end = std::max(end, row(number).end);
  const std::size_t own = activities.size();
  for (std::size_t i = 0; i < own; ++i) {
    const Activity a = activities[i];
    if (a.end - period_ > first) activities.push_back({a.begin - period_, a.end - period_, a.row, 1});
    if (a.begin + period_ < end) activities.push_back({a.begin + period_, a.end + period_, a.row, -1});
  }
  std::sort(activities.begin(), activities.end(), by_begin);
}

void StepCauses::find_activities() {
  if (!why_not_.empty()) return;
  computes_.resize(inputs_.programs.size());
  kernels_.resize(inputs_.programs.size());
  moved_.assign(row_begin_.back(), 0);
  for (std::uint32_t p = 0; p < inputs_.programs.size(); ++p) {
    for (std::uint32_t number = row_begin_[p]; number < row_begin_[p + 1]; ++number)
      if (flat_of(number).kind == FlatKind::compute)
        computes_[p].push_back({row(number).start, row(number).end, number, 0});
    add_neighbours(computes_[p]);
    for (const auto& lane : inputs_.programs[p].lanes)
      for (const std::uint32_t op : lane) {  // messages of a group are served in order
        const std::uint32_t number = row_begin_[p] + op;
        const FlatOp& flat = flat_of(number);
        if (group_[number] == kAlone || flat.kind == FlatKind::send) continue;
        const CollectiveCost& cost = inputs_.costs.collective[flat.id];
        const Picoseconds from = cause_of_moving(number).at;
        moved_[number] = moved_by(number, from, computes_[p]);
        // The last member's end is that of the row, to rounding; nothing that follows from the row may come before.
        if (moved_[number] > row(number).end - kMostRounding) moved_[number] = std::max(from, row(number).end);
        if (cost.movement.alone == 0) continue;
        if (!cost.interference || cost.movement.cores != 0 || cost.cores != 0 || cost.phases > 1)
          why_not_ = "a communication takes turns with computation";
        kernels_[p].push_back({from, moved_[number], number, 0});
        longest_kernel_ = std::max(longest_kernel_, moved_[number] - from);
      }
    add_neighbours(kernels_[p]);
  }
}

// Returns the end of the movement of a communication beside the device's computations.
Picoseconds StepCauses::moved_by(std::uint32_t number, Picoseconds from, const std::vector<Activity>& computes) const {
  const CollectiveCost& cost = inputs_.costs.collective[op_of(number)];
  double left = static_cast<double>(cost.movement.alone), at = static_cast<double>(from);
  if (!cost.interference) return from + cost.movement.alone;
  auto next = std::partition_point(computes.begin(), computes.end(), [&](const Activity& a) { return a.end <= from; });
  for (; next != computes.end(); ++next) {
    const double begin = std::max(at, static_cast<double>(next->begin)), end = static_cast<double>(next->end);
    if (at + left <= begin) break;
    left -= begin - at;
    at = begin;
    const double stretch = 1 + cost.interference->slowed[static_cast<std::size_t>(flat_of(next->row).cls)];
    if (left * stretch <= end - at) return std::llround(at + left * stretch);
    left -= (end - at) / stretch;
    at = end;
  }
  return std::llround(at + left);
}

// ---- causes ----

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
  const auto behind =
      std::partition_point(computes.begin(), computes.end(), [&](const Activity& a) { return a.begin < mine.start; });
  if (behind == computes.begin() || !is_near((behind - 1)->end, mine.start)) return std::nullopt;
  return Cause{id((behind - 1)->row, RowTime::end), (behind - 1)->steps_ago, mine.start};
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

// ---- work at rates that change ----

// Returns the moments at which the other activities of the device change the speed of one, in order; what is active
// already counts as its beginning.
std::vector<StepCauses::Breakpoint> StepCauses::breakpoints_of(std::uint32_t number, Picoseconds begin,
                                                               Picoseconds end) const {
  std::vector<Breakpoint> found;
  const std::uint32_t program = place_of(number).program;
  const bool computes = flat_of(number).kind == FlatKind::compute;
  const std::vector<Activity>& others = computes ? kernels_[program] : computes_[program];
  auto next = std::partition_point(others.begin(), others.end(), [&](const Activity& a) {
    return computes ? a.begin < begin - longest_kernel_ : a.end <= begin;
  });
  for (; next != others.end() && next->begin < end; ++next) {
    if (next->end <= begin) continue;
    const std::uint32_t communication = computes ? next->row : number, computation = computes ? number : next->row;
    const std::optional<KernelInterference>& interference = inputs_.costs.collective[op_of(communication)].interference;
    if (!interference) continue;
    const DemandClass cls = flat_of(computation).cls;
    const double stretch = (computes ? interference->slows : interference->slowed)[static_cast<std::size_t>(cls)];
    Cause from = computes ? cause_of_moving(next->row) : Cause{id(next->row, RowTime::start), 0, next->begin};
    from.steps_ago += next->steps_ago;
    found.push_back({std::max(next->begin, begin), from, *next, true, stretch, cls});
    if (next->end < end)
      found.push_back({next->end,
                       {id(next->row, computes ? RowTime::moved : RowTime::end), next->steps_ago, next->end},
                       *next,
                       false,
                       -stretch,
                       cls});
  }
  std::stable_sort(found.begin(), found.end(), [](const Breakpoint& a, const Breakpoint& b) { return a.at < b.at; });
  return found;
}

// Between breakpoints b the work is done at the rate 1 / stretch, so that Σ (b' − b) / stretch = work, of which the end
// is the last b'.
void StepCauses::explain_work(std::uint32_t number, Explanation& result) const {
  const bool computes = flat_of(number).kind == FlatKind::compute;
  const Cause from = computes ? Cause{id(number, RowTime::start), 0, row(number).start} : cause_of_moving(number);
  const Picoseconds end = computes ? row(number).end : moved_[number];
  const std::vector<Breakpoint> breakpoints = breakpoints_of(number, from.at, end);
  const OpId op = op_of(number);
  double stretch = 1, first_rate = 0;
  std::vector<const Breakpoint*> active;
  const std::size_t times = result.times.size(), parts = result.parts.size();
  Picoseconds at = from.at;
  const auto go_to = [&](Picoseconds until) {
    const double rate = 1 / stretch, length = static_cast<double>(until - at);
    if (until > at)
      for (const Breakpoint* b : active)
        result.parts.push_back({computes ? Explanation::Cost::slows : Explanation::Cost::slowed,
                                computes ? op_of(b->by.row) : op, b->cls, length * rate * rate});
    at = until;
  };
  result.times.push_back({from.time, from.steps_ago, 0});
  bool has_begun = false;
  for (const Breakpoint& b : breakpoints) {
    if (!has_begun && b.at > from.at) has_begun = true, first_rate = 1 / stretch;
    go_to(b.at);
    const double before = 1 / stretch;
    stretch += b.stretch;
    if (b.begins)
      active.push_back(&b);
    else
      std::erase_if(active,
                    [&](const Breakpoint* a) { return a->by.row == b.by.row && a->by.steps_ago == b.by.steps_ago; });
    if (has_begun) result.times.push_back({b.cause.time, b.cause.steps_ago, 1 / stretch - before});
  }
  if (!has_begun) first_rate = 1 / stretch;
  go_to(end);
  result.times[times].weight = first_rate;
  result.parts.push_back({computes ? Explanation::Cost::computes : Explanation::Cost::moves, op, {}, 1});
  for (std::size_t i = times; i < result.times.size(); ++i) result.times[i].weight *= stretch;
  for (std::size_t i = parts; i < result.parts.size(); ++i) result.parts[i].weight *= stretch;
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
