#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "sim/step_causes.hpp"

// The concurrent parts of a recorded step: who meets whom, which activities a device has at one time, and how the
// length of work follows from the others.
namespace stretto::sim {
namespace {

// The replayed movement of a communication may end this many picoseconds earlier or later: each change of its rate
// rounds by half of one (sim/device.cpp).
constexpr Picoseconds kMostReplayed = 64;

}  // namespace

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
        if (moved_[number] > row(number).end - kMostReplayed) moved_[number] = std::max(from, row(number).end);
        if (cost.movement.alone == 0) continue;
        if (!cost.interference || cost.movement.cores != 0 || cost.cores != 0 || cost.phases > 1)
          why_not_ = "a communication takes turns with computation";
        kernels_[p].push_back({from, moved_[number], number, 0});
        longest_kernel_ = std::max(longest_kernel_, moved_[number] - from);
      }
    add_neighbours(kernels_[p]);
  }
}

// Returns the end of the movement of a communication that is concurrent with the device's computations.
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

// Between breakpoints b the work is done at the rate 1 / stretch, so that Σ (b' − b) / stretch = work. The end
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

}  // namespace stretto::sim
