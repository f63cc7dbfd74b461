#include "sim/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "sim/components.hpp"
#include "sim/equal_moments.hpp"

namespace stretto::sim {
namespace {

// Example: 1F1B on two stages, forward 10 µs, backward 20 µs, messages free. A step of m micro-batches takes
// (m + 1) · 30 µs: 150 with 4. From micro-batch 1 to 2 every operation of both stages begins, ends and becomes ready
// exactly 30 µs later, so the round is T = 30 µs, and a step of 8 takes 150 + 4 · 30 = 270 µs without being simulated.
// If one operation were later by another amount, say because a queue of messages grows, no moment t would do: what is
// active then has not the same work left as T later, and the difference may surface at any later micro-batch.

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

// Returns when the host issued each operation (HostClock). The host begins with the step; its first operation says
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
