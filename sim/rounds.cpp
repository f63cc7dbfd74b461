#include "sim/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "sim/components.hpp"

namespace stretto::sim {
namespace {

// Finds the twins, which are equally far apart on a lane in a full pipeline: as far as two micro-batches in the middle
// of the lane are. Returns false where a lane has operations of micro-batches besides those of its rounds, as weight
// gradients that are put off to the end: a longer step would have more of them there.
bool find_twins(const Schedule& schedule, const BoundProgram& program, std::int64_t micro_batches, std::int64_t from,
                Twins& twins, std::string& why_not) {
  twins.twin.assign(program.ops.size(), kNoTwin);
  twins.apart.assign(program.lanes.size(), 0);
  twins.steady.assign(program.lanes.size(), {});
  std::int64_t all = 0;
  for (const BoundOp& op : program.ops) all = std::max<std::int64_t>(all, op.micro_batch + 1);
  // The first and the last micro-batch may have operations of their own.
  const std::int64_t begin = from + (all - from - micro_batches) / 2, end = begin + micro_batches;
  if (begin < 1 || end >= all) {
    why_not = fmt::format("{} micro-batches have no round between the first and the last", all);
    return false;
  }
  const auto are_twins = [&](std::uint32_t first, std::uint32_t second) {
    const BoundOp &a = program.ops[first], &b = program.ops[second];
    return a.op == b.op && a.layer == b.layer && a.chunk == b.chunk && a.micro_batch + micro_batches == b.micro_batch;
  };
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    const std::vector<std::uint32_t>& lane = program.lanes[l];
    const auto apart = static_cast<std::size_t>(std::count_if(lane.begin(), lane.end(), [&](std::uint32_t i) {
      return program.ops[i].micro_batch >= begin && program.ops[i].micro_batch < end;
    }));
    twins.apart[l] = apart;
    PositionRange& steady = twins.steady[l];
    std::size_t begin_of_run = 0;
    for (std::size_t i = 0; apart > 0 && i + apart < lane.size(); ++i) {
      if (!are_twins(lane[i], lane[i + apart])) {
        begin_of_run = i + 1;
        continue;
      }
      twins.twin[lane[i]] = lane[i + apart];
      if (i + 1 - begin_of_run > steady.end - steady.begin) steady = {begin_of_run, i + 1};
    }
    if (apart > 0 && steady.begin == steady.end) {
      why_not = fmt::format("lane {} has operations that are not of one round after the other", schedule.lanes[l].name);
      return false;
    }
  }
  return true;
}

// Returns when the host issued each operation (HostClock). The host begins with the step; its first operation tells
// when that was.
IssueTimes issue_times(const FlatProgram& flat, std::span<const TimelineRow> rows) {
  std::vector<const FlatOp*> in_order(rows.size());
  Picoseconds begin = kHorizon;
  for (const FlatOp& op : flat.ops) {
    in_order[op.op] = &op;
    if (op.segment == 0) begin = std::min(begin, rows[op.op].ready - op.issued);
  }
  IssueTimes times{
      std::vector<Picoseconds>(rows.size()), {{begin, begin}}, std::vector<std::uint32_t>(rows.size()), {}};
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    const FlatOp& op = *in_order[i];
    const Picoseconds segment = times.segments.at(op.segment).begin;
    times.issued[i] = segment + op.issued;
    times.segment_of[i] = op.segment;
    if (!op.ends_segment) continue;
    const Picoseconds waits_from = times.segments.back().begin + op.awaited;
    times.segments.push_back({std::max(waits_from, rows[i].end), waits_from});
    times.awaited.push_back(i);
  }
  return times;
}

// Looks for a moment at which the ranks are in the state in which they are a period later, but for a round of
// micro-batches. The state at a moment is the operations that lanes are at and since when, the work left of those that
// are active, and the host's clock. Work left follows from the times of all operations that were active since the first
// of them became ready.
class EqualMoments {
 public:
  EqualMoments(const SimInputs& inputs, const std::vector<RankRows>& parts, const Timeline& timeline)
      : parts_(parts), step_begin_(timeline.step_begin), delay_(inputs.costs.wake + inputs.costs.op_overhead) {
    for (const Lane& lane : inputs.schedule.lanes) is_compute_.push_back(lane.kind == LaneKind::compute);
    Picoseconds first = kHorizon;
    for (const RankRows& part : parts_)
      for (const TimelineRow& row : part.rows) first = std::min(first, row.ready);
    until_ = first + (timeline.step_end - timeline.step_begin) - delay_;  // then the next step begins
    each_lane([&](const LaneRows& lane) {
      if (lane.apart > 0) until_ = std::min(until_, lane.row(lane.steady.end - 1 + lane.apart).end);
      return true;
    });
  }

  // Before this moment every lane goes on as in a longer step.
  Picoseconds until() const { return until_; }

  // Returns the earlier of two such moments, if there are any. until() becomes earlier where a lane without rounds is
  // active before.
  std::optional<Picoseconds> find(Picoseconds period) {
    // Equal states stay equal while the lanes go on alike, so the last moment tells as much as all. The part that is
    // returned ends earlier: its last waits are for operations behind it, which must be those of a longer step.
    const Picoseconds last = until_ - 1 - period, begin = last - period / 4;
    if (begin < step_begin_ || !are_lanes_equal(last, period)) return std::nullopt;
    if (since(begin) < std::max(step_begin_, equal_from(last, period))) return std::nullopt;
    for (const RankRows& part : parts_)
      if (!part.host.issued.empty() && !is_host_equal(part, begin, period)) return std::nullopt;
    return begin;
  }

 private:
  struct LaneRows {
    const RankRows& part;
    const std::vector<std::uint32_t>& ops;
    const std::size_t apart;
    const PositionRange& steady;
    const bool is_compute;

    const TimelineRow& row(std::size_t position) const { return part.rows[ops[position]]; }
    std::size_t ended_by(Picoseconds time) const {
      return static_cast<std::size_t>(
          std::partition_point(ops.begin(), ops.end(), [&](std::uint32_t i) { return part.rows[i].end <= time; }) -
          ops.begin());
    }
  };

  // Calls visit(LaneRows) until it returns false. Returns whether all returned true.
  template <class Visit>
  bool each_lane(Visit visit) const {
    return std::all_of(parts_.begin(), parts_.end(), [&](const RankRows& part) { return each_lane(part, visit); });
  }
  template <class Visit>
  bool each_lane(const RankRows& part, Visit visit) const {
    for (std::size_t l = 0; l < part.program->lanes.size(); ++l)
      if (!visit(LaneRows{part, part.program->lanes[l], part.twins->apart[l], part.twins->steady[l], is_compute_[l]}))
        return false;
    return true;
  }

  // Returns whether all lanes are at twins, which became ready a period apart, or wait at both moments.
  bool are_lanes_equal(Picoseconds now, Picoseconds period) {
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
  Picoseconds equal_from(Picoseconds now, Picoseconds period) const {
    Picoseconds from = 0;
    each_lane([&](const LaneRows& lane) {
      std::size_t i = lane.ended_by(now);
      while (i > lane.steady.begin && lane.apart > 0 && is_later(lane.row(i - 1 + lane.apart), lane.row(i - 1), period))
        --i;
      if (i > 0) from = std::max({from, lane.row(i - 1).end, lane.row(i - 1 + lane.apart).end - period});
      return true;
    });
    return from;
  }

  // Returns the time on which the state `now` depends: when the first of the operations that are active became ready.
  // A rank that waits accounts for all of its wait at once, so the wait counts as well (report/exposure.cpp).
  Picoseconds since(Picoseconds now) const {
    Picoseconds first = now;
    for (const RankRows& part : parts_) {
      Picoseconds waits_from = step_begin_;
      each_lane(part, [&](const LaneRows& lane) {
        const std::size_t at = lane.ended_by(now);
        const bool is_active = at < lane.ops.size() && lane.row(at).ready <= now + delay_;
        if (is_active) first = std::min(first, lane.row(at).ready);
        if (lane.is_compute && at < lane.ops.size() && lane.row(at).ready <= now) waits_from = now;
        if (lane.is_compute && at > 0) waits_from = std::max(waits_from, lane.row(at - 1).end);
        return true;
      });
      first = std::min(first, waits_from);
    }
    return first - delay_;
  }

  static bool is_later(const TimelineRow& then, const TimelineRow& now, Picoseconds by) {
    return then.ready - now.ready == by && then.start - now.start == by && then.transfer - now.transfer == by &&
           then.end - now.end == by && then.waited == now.waited;
  }

  // Returns whether the host of a step with more rounds issues all that follows `now` a period later for each of them,
  // or earlier and in time: an operation that is ready because it is issued must be issued exactly so much later.
  bool is_host_equal(const RankRows& part, Picoseconds now, Picoseconds period) const {
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

  const std::vector<RankRows>& parts_;
  const Picoseconds step_begin_, delay_;  // a lane may begin `delay_` later than what it waited for
  std::vector<bool> is_compute_;          // [lane]
  Picoseconds until_ = 0;
};

// Returns the round of ranks that come to all communication of a round together.
std::optional<Round> round_of(const SimInputs& inputs, const std::vector<RankRows>& parts, const Timeline& timeline) {
  constexpr std::size_t kMostPeriods = 3;
  // The busiest lane of the first rank proposes periods, the latest first, because the pipeline is full then.
  const RankRows& part = parts.front();
  const std::vector<std::size_t>& apart = part.twins->apart;
  const auto busiest = std::max_element(apart.begin(), apart.end());
  if (busiest == apart.end() || *busiest == 0) return std::nullopt;
  const std::vector<std::uint32_t>& lane = part.program->lanes[static_cast<std::size_t>(busiest - apart.begin())];
  const PositionRange steady = part.twins->steady[static_cast<std::size_t>(busiest - apart.begin())];
  EqualMoments moments(inputs, parts, timeline);
  std::vector<Picoseconds> tried;
  for (std::size_t i = steady.end; i-- > steady.begin && tried.size() < kMostPeriods;) {
    const TimelineRow &row = part.rows[lane[i]], &twin = part.rows[lane[i + *busiest]];
    const Picoseconds period = twin.end - row.end;
    if (twin.end >= moments.until() || std::count(tried.begin(), tried.end(), period) > 0) continue;
    tried.push_back(period);
    if (const std::optional<Picoseconds> begin = moments.find(period)) return Round{*begin, period};
  }
  return std::nullopt;
}

}  // namespace

StepTwins::StepTwins(const Schedule& schedule, const std::vector<BoundProgram>& programs, std::int64_t micro_batches,
                     std::int64_t from)
    : micro_batches_(micro_batches), from_(from) {
  for (std::size_t p = 0; p < programs.size() && why_not_.empty(); ++p) {
    std::size_t like = 0;
    while (like < p && (programs[like].role != programs[p].role || programs[like].lanes != programs[p].lanes)) ++like;
    if (like < p) {
      of_.push_back(of_[like]);
      continue;
    }
    Twins twins;
    if (find_twins(schedule, programs[p], micro_batches, from, twins, why_not_))
      of_.push_back(std::make_shared<const Twins>(std::move(twins)));
  }
}

std::optional<Round> find_round(const SimInputs& inputs, const Timeline& timeline, const StepTwins& twins,
                                std::string& why_not) {
  why_not = twins.why_not();
  if (!why_not.empty()) return std::nullopt;
  const std::int64_t micro_batches = twins.micro_batches();
  std::vector<RankRows> parts;
  std::size_t first = 0;
  for (std::uint32_t p = 0; p < inputs.programs.size(); ++p) {
    const BoundProgram& program = inputs.programs[p];
    RankRows part{p, &program, std::span(timeline.rows).subspan(first, program.ops.size()), &twins.of(p), {}};
    if (!inputs.costs.host.issue.empty()) part.host = issue_times(*inputs.flat[p], part.rows);
    first += program.ops.size();
    parts.push_back(std::move(part));
  }
  if (inputs.costs.of_rank.empty()) {
    const std::optional<Round> round = round_of(inputs, parts, timeline);
    if (!round)
      why_not =
          fmt::format("no round of {} micro-batches is followed by one at equal distances on all lanes", micro_batches);
    return round;
  }
  std::vector<Component> components = components_of(inputs, std::move(parts));
  for (Component& component : components) {
    const std::optional<Round> round = round_of(inputs, component.parts, timeline);
    if (!round) {
      why_not = fmt::format("the ranks that communicate with rank {} have no round of {} micro-batches",
                            component.parts.front().program->rank, micro_batches);
      return std::nullopt;
    }
    component.round = *round;
  }
  const auto slowest = std::max_element(components.begin(), components.end(),
                                        [](const auto& a, const auto& b) { return a.round.period < b.round.period; });
  if (components.size() == 1) return slowest->round;
  if (!others_wait(inputs, components, slowest->round.period)) {
    why_not = "faster ranks are still at work when the slowest come to the first communication that they share";
    return std::nullopt;
  }
  return Round{slowest->round.begin, slowest->round.period, false};
}

}  // namespace stretto::sim
