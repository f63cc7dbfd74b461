#include "sim/equal_moments.hpp"

#include <algorithm>
#include <cstdint>

namespace stretto::sim {
namespace {

bool is_later_by(const TimelineRow& then, const TimelineRow& now, Picoseconds by) {
  return then.ready - now.ready == by && then.start - now.start == by && then.transfer - now.transfer == by &&
         then.end - now.end == by && then.waited == now.waited;
}

}  // namespace

// A lane of a rank with its rows.
struct EqualMoments::LaneRows {
  const RankRows& part;
  const LaneId id;
  const std::vector<std::uint32_t>& ops;
  const std::size_t apart;
  const PositionRange& steady;

  const TimelineRow& row(std::size_t position) const { return part.rows[ops[position]]; }
  std::size_t ended_by(Picoseconds time) const {
    return static_cast<std::size_t>(
        std::partition_point(ops.begin(), ops.end(), [&](std::uint32_t i) { return part.rows[i].end <= time; }) -
        ops.begin());
  }
};

// Calls visit(LaneRows) until it returns false. Returns whether all returned true.
template <class Visit>
bool EqualMoments::each_lane(const RankRows& part, const Visit& visit) {
  for (std::size_t l = 0; l < part.program->lanes.size(); ++l)
    if (!visit(LaneRows{part, static_cast<LaneId>(l), part.program->lanes[l], part.twins->apart[l],
                        part.twins->steady[l]}))
      return false;
  return true;
}
template <class Visit>
bool EqualMoments::each_lane(const Visit& visit) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const RankRows& part) { return each_lane(part, visit); });
}

EqualMoments::EqualMoments(const SimInputs& inputs, const std::vector<RankRows>& parts, const Timeline& timeline)
    : inputs_(inputs),
      parts_(parts),
      step_begin_(timeline.step_begin),
      delay_(inputs.costs.wake + inputs.costs.op_overhead) {
  Picoseconds first = kHorizon;
  for (const RankRows& part : parts_)
    for (const TimelineRow& row : part.rows) first = std::min(first, row.ready);
  until_ = first + (timeline.step_end - timeline.step_begin) - delay_;  // then the next step begins
  each_lane([&](const LaneRows& lane) {
    if (lane.apart > 0) until_ = std::min(until_, lane.row(lane.steady.end - 1 + lane.apart).end);
    return true;
  });
}

std::optional<Picoseconds> EqualMoments::find(Picoseconds period) {
  // Equal states stay equal while the lanes go on equally, so the last moment says as much as all. The part that is
  // returned ends earlier: its last waits are for later operations, which must be those of a longer step.
  const Picoseconds last = until_ - 1 - period, begin = last - period / 4;
  if (begin < step_begin_ || !are_lanes_equal(last, period)) return std::nullopt;
  if (since(begin) < std::max(step_begin_, equal_from(last, period))) return std::nullopt;
  for (const RankRows& part : parts_)
    if (!part.host.issued.empty() && !is_host_equal(part, begin, period)) return std::nullopt;
  return begin;
}

// Returns whether all lanes are at twins, which became ready a period apart, or wait at both moments.
bool EqualMoments::are_lanes_equal(Picoseconds now, Picoseconds period) {
  const Picoseconds then = now + period;
  return each_lane([&](const LaneRows& lane) {
    const std::size_t at = lane.ended_by(now);
    if (lane.apart == 0) {
      if (at == lane.ops.size() || lane.row(at).ready > then + delay_) return true;
      until_ = std::min(until_, lane.row(at).ready - delay_);
      return false;
    }
    if (lane.ended_by(then) != at + lane.apart || at < lane.steady.begin || at >= lane.steady.end) return false;
    const TimelineRow &next = lane.row(at), &twin = lane.row(at + lane.apart);
    return next.ready > now + delay_ ? twin.ready > then + delay_ : twin.ready == next.ready + period;
  });
}

// Returns the moment from which on all operations, up to the last that have ended `now`, have twins a period later.
Picoseconds EqualMoments::equal_from(Picoseconds now, Picoseconds period) const {
  Picoseconds from = 0;
  each_lane([&](const LaneRows& lane) {
    std::size_t i = lane.ended_by(now);
    while (i > lane.steady.begin && lane.apart > 0 &&
           is_later_by(lane.row(i - 1 + lane.apart), lane.row(i - 1), period))
      --i;
    if (i > 0) from = std::max({from, lane.row(i - 1).end, lane.row(i - 1 + lane.apart).end - period});
    return true;
  });
  return from;
}

// Returns the time on which the state `now` depends: when the first of the operations that are active became ready.
// A rank that waits accounts for all of its wait at once, so the wait counts as well (report/exposure.cpp).
Picoseconds EqualMoments::since(Picoseconds now) const {
  Picoseconds first = now;
  for (const RankRows& part : parts_) {
    Picoseconds waits_from = step_begin_;
    each_lane(part, [&](const LaneRows& lane) {
      const std::size_t at = lane.ended_by(now);
      const bool is_active = at < lane.ops.size() && lane.row(at).ready <= now + delay_;
      if (is_active) first = std::min(first, lane.row(at).ready);
      if (inputs_.schedule.lanes[lane.id].kind != LaneKind::compute) return true;
      if (at < lane.ops.size() && lane.row(at).ready <= now) waits_from = now;
      if (at > 0) waits_from = std::max(waits_from, lane.row(at - 1).end);
      return true;
    });
    first = std::min(first, waits_from);
  }
  return first - delay_;
}

// Returns whether the host of a step with more rounds issues all that follows `now` a period later for each of them,
// or earlier and in time: an operation that is ready because it is issued must be issued exactly so much later.
bool EqualMoments::is_host_equal(const RankRows& part, Picoseconds now, Picoseconds period) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  const IssueTimes& host = part.host;
  std::uint32_t first = kNone, first_twin = kNone;  // `first`: of the round, in the host's order
  each_lane(part, [&](const LaneRows& lane) {
    const std::size_t at = lane.ended_by(now);
    if (lane.apart > 0 && lane.ops[at] < first) first = lane.ops[at], first_twin = lane.ops[at + lane.apart];
    return true;
  });
  if (first == kNone) return true;
  const Picoseconds later = host.issued[first_twin] - host.issued[first];
  if (later > period) return false;
  // [segment from that of `first` on] whether it begins exactly a period later, and not before that
  std::vector<bool> is_exact = {later == period};
  for (std::uint32_t s = host.segment_of[first]; s + 1 < host.segments.size(); ++s) {
    const std::uint32_t awaited = host.awaited.at(s);
    const Picoseconds end = part.rows[awaited].end;
    const std::uint32_t twin = part.twins->twin[awaited];
    if (end <= now && twin == kNoTwin) return false;
    const Picoseconds moves = end > now ? period : part.rows[twin].end - end;
    if (moves > period) return false;
    const bool binds = end >= host.segments[s + 1].waits_from;
    is_exact.push_back(binds ? moves == period : bool(is_exact.back()));
  }
  return each_lane(part, [&](const LaneRows& lane) {
    for (std::size_t i = lane.ended_by(now); i < lane.ops.size(); ++i) {
      const std::uint32_t op = lane.ops[i];
      if (host.segment_of[op] < host.segment_of[first]) return false;
      if (host.issued[op] >= part.rows[op].ready && !is_exact[host.segment_of[op] - host.segment_of[first]])
        return false;
    }
    return true;
  });
}

}  // namespace stretto::sim
