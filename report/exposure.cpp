#include "report/exposure.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <span>
#include <utility>
#include <variant>

namespace stretto {
namespace {

// A transfer on a communication lane, or its wait for cores before that.
struct Window {
  Picoseconds begin = 0, end = 0;
  Picoseconds lane_end = 0;  // when the lane went on: later than `end` where it was joined with other messages
  std::uint32_t position = 0;
  std::uint32_t communicator = 0;
  bool joined = false;  // to the one before
};

struct Interval {
  Picoseconds begin = 0, end = 0;
};

// Rows are in order of (rank, op).
struct RankOrder {
  bool operator()(const TimelineRow& row, std::int64_t rank) const { return row.rank < rank; }
  bool operator()(std::int64_t rank, const TimelineRow& row) const { return rank < row.rank; }
};

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr std::int64_t kNothing = -1, kAll = std::numeric_limits<std::int64_t>::max();

// Takes what [begin, end) covers of the free intervals out of them, so that no instant counts twice; how much it was.
Picoseconds take(std::vector<Interval>& free, Picoseconds begin, Picoseconds end) {
  Picoseconds taken = 0;
  for (std::size_t i = 0; i < free.size();) {
    const Interval part = free[i];
    const Picoseconds from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) {
      ++i;
      continue;
    }
    taken += to - from;
    const auto here = free.begin() + static_cast<std::ptrdiff_t>(i);
    if (part.begin < from && to < part.end) {
      free[i].end = from;
      free.insert(here + 1, {to, part.end});
      return taken;
    }
    if (part.begin < from) {
      free[i++].end = from;
    } else if (to < part.end) {
      free[i++].begin = to;
    } else {
      free.erase(here);
    }
  }
  return taken;
}

class Walk {
 public:
  Walk(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline)
      : schedule_(schedule), program_(program), period_(timeline.step_end - timeline.step_begin) {
    result_.exposed.assign(schedule.communicators.size(), 0);
    for (const Operation& operation : schedule.operations)
      communicator_.push_back(is_communication(operation.work) ? communicator_of(operation.work) : kNobody);
    transfers_.resize(program.lanes.size());
    queued_.resize(program.lanes.size());
    collect(timeline);
    // A step whose compute starts before the last operation of the step before has ended (parameters are still being
    // gathered) is looked at over the period that starts with its compute; the next step's compute fills the rest.
    begin_ = timeline.step_begin;
    if (!compute_.empty()) begin_ = std::min(begin_, compute_.front()->ready);
    end_ = begin_ + period_;
  }

  Breakdown run() {
    Picoseconds cursor = begin_;
    for (std::size_t i = 0; i < compute_.size(); ++i) {
      const TimelineRow* row = compute_[i];
      const std::size_t first = i;
      while (i + 1 < compute_.size() && program_.ops[compute_[i + 1]->op].joined) ++i;
      // Clamping keeps the sum exact even for clocks that disagree by a tick.
      const Picoseconds ready = std::clamp(row->ready, cursor, end_);
      const Picoseconds start = std::clamp(row->start, ready, end_);
      const Picoseconds end = std::clamp(compute_[i]->end, start, end_);
      wait_before(row->op, cursor, ready);
      result_.core_wait += start - ready;
      if (communicates(row->op))
        communicate_on_compute_lane(std::span(compute_).subspan(first, i + 1 - first), start, end);
      else
        result_.compute += end - start;
      cursor = end;
    }
    wait_at_the_tail(cursor);
    for (const Picoseconds exposed : result_.exposed) result_.exposed_total += exposed;
    return std::move(result_);
  }

 private:
  std::uint32_t communicator(std::uint32_t op) const { return communicator_[program_.ops[op].op]; }
  bool communicates(std::uint32_t op) const { return communicator(op) != kNobody; }

  void collect(const Timeline& timeline) {
    std::size_t compute_lane = 0;
    while (compute_lane < schedule_.lanes.size() && schedule_.lanes[compute_lane].kind != LaneKind::compute)
      ++compute_lane;
    const auto [begin, end] = std::equal_range(timeline.rows.begin(), timeline.rows.end(), program_.rank, RankOrder{});
    for (std::size_t lane = 0; lane < transfers_.size(); ++lane)
      if (lane == compute_lane)
        compute_.reserve(program_.lanes[lane].size());
      else
        transfers_[lane].windows.reserve(program_.lanes[lane].size());
    assert(begin == end || (end - 1)->op < program_.ops.size());
    for (auto at = begin; at != end; ++at) {
      const TimelineRow& row = *at;
      const BoundOp& op = program_.ops[row.op];
      if (op.lane == compute_lane) {
        compute_.push_back(&row);
      } else if (communicates(row.op)) {
        transfers_[op.lane].windows.push_back(
            {row.transfer, row.moved(), row.end, op.position, communicator(row.op), op.joined});
        if (row.start > row.ready)
          queued_[op.lane].windows.push_back(
              {row.ready, row.start, row.start, op.position, communicator(row.op), op.joined});
      }
    }
  }

  // What a lane's operations are doing: in lane order, so that `lane_end` is in order too.
  struct LaneWindows {
    std::vector<Window> windows;
    std::array<std::size_t, 2> first{};  // [steps ago]: the first window that may reach beyond a gap
  };

  // Charges what windows of a lane, up to `last_position`, of the step `steps_ago` steps before, cover of a gap: to
  // [communicator] of `to`, or all to its only element.
  void charge(LaneWindows& lane, int steps_ago, std::int64_t last_position, std::vector<Interval>& free,
              std::span<Picoseconds> to) {
    const Picoseconds shift = -steps_ago * period_;
    const auto& windows = lane.windows;
    if (last_position == kNothing || free.empty() || windows.empty()) return;
    // Windows that ended before the gap can be skipped; gaps only move on.
    std::size_t& first = lane.first[static_cast<std::size_t>(steps_ago)];
    while (first < windows.size() && windows[first].lane_end + shift <= free.front().begin) ++first;
    for (auto window = windows.begin() + static_cast<std::ptrdiff_t>(first);
         window != windows.end() && window->position <= last_position && !free.empty(); ++window) {
      if (window->begin + shift >= free.back().end) {
        // Of joined messages a later one may have begun earlier.
        if (window + 1 != windows.end() && (window + 1)->joined) continue;
        break;
      }
      to[to.size() == 1 ? 0 : window->communicator] += take(free, window->begin + shift, window->end + shift);
    }
  }

  void wait_before(std::uint32_t op, Picoseconds from, Picoseconds to) {
    if (from >= to) return;
    // Per lane, how far in this step and in the one before the lane must have come. What is queued ahead on the lane of
    // an awaited operation is waited for as well.
    bool waits = false;
    for (std::uint32_t i = program_.ops[op].wait_begin; i < program_.ops[op].wait_end; ++i) {
      const BoundWait& wait = program_.waits[i];
      if (wait.kind != EdgeKind::finish_start || !communicates(wait.op)) continue;
      if (!waits) last_.assign(transfers_.size(), {kNothing, kNothing});
      waits = true;
      // A message is over when those that it is joined with are.
      const std::vector<std::uint32_t>& lane = program_.lanes[wait.lane];
      std::int64_t position = wait.position;
      while (position + 1 < std::ssize(lane) && program_.ops[lane[static_cast<std::size_t>(position + 1)]].joined)
        ++position;
      auto& [this_step, step_before] = last_[wait.lane];
      if (wait.steps_ago == 0) this_step = std::max(this_step, position), step_before = kAll;
      if (wait.steps_ago == 1) step_before = std::max(step_before, position);
    }
    if (!waits) {
      result_.bubble += to - from;
      return;
    }
    free_.assign(1, {from, to});
    for (std::size_t lane = 0; lane < transfers_.size(); ++lane) {
      charge(transfers_[lane], 1, last_[lane].second, free_, result_.exposed);
      charge(transfers_[lane], 0, last_[lane].first, free_, result_.exposed);
    }
    for (std::size_t lane = 0; lane < queued_.size(); ++lane) {
      charge(queued_[lane], 1, last_[lane].second, free_, {&result_.core_wait, 1});
      charge(queued_[lane], 0, last_[lane].first, free_, {&result_.core_wait, 1});
    }
    for (const Interval& rest : free_) result_.bubble += rest.end - rest.begin;
  }

  void wait_at_the_tail(Picoseconds from) {
    if (from >= end_) return;
    std::vector<Interval> free{{from, end_}};
    for (LaneWindows& lane : transfers_) charge(lane, 0, kAll, free, result_.exposed);
    for (LaneWindows& lane : queued_) charge(lane, 0, kAll, free, {&result_.core_wait, 1});
    for (const Interval& rest : free) result_.bubble += rest.end - rest.begin;
  }

  // A communication on the compute lane itself blocks it: fully exposed, and waiting for its peers is bubble. `rows`:
  // one, or messages that are joined.
  void communicate_on_compute_lane(std::span<const TimelineRow* const> rows, Picoseconds start, Picoseconds end) {
    free_.assign(1, {start, end});
    for (const TimelineRow* row : rows)
      result_.exposed[communicator(row->op)] += take(free_, row->transfer, row->moved());
    for (const Interval& rest : free_) result_.bubble += rest.end - rest.begin;
  }

  const Schedule& schedule_;
  const BoundProgram& program_;
  std::vector<std::uint32_t> communicator_;  // [OpId]; kNobody: of computation
  Picoseconds period_ = 0, begin_ = 0, end_ = 0;
  std::vector<const TimelineRow*> compute_;                  // in lane order
  std::vector<LaneWindows> transfers_;                       // [lane]
  std::vector<LaneWindows> queued_;                          // [lane]: waits for cores
  std::vector<std::pair<std::int64_t, std::int64_t>> last_;  // of one gap, see wait_before
  std::vector<Interval> free_;
  Breakdown result_;
};

}  // namespace

Breakdown breakdown(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline) {
  return Walk(schedule, program, timeline).run();
}

Breakdown mean_breakdown(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                         const Timeline& timeline) {
  Breakdown mean;
  mean.exposed.assign(schedule.communicators.size(), 0);
  if (programs.empty()) return mean;
  for (const BoundProgram& program : programs) {
    const Breakdown one = breakdown(schedule, program, timeline);
    mean.compute += one.compute;
    mean.core_wait += one.core_wait;
    for (std::size_t i = 0; i < mean.exposed.size(); ++i) mean.exposed[i] += one.exposed[i];
  }
  // Rounding down and leaving the remainders to bubble keeps both the sum exact and bubble non-negative.
  const auto ranks = static_cast<Picoseconds>(programs.size());
  mean.compute /= ranks;
  mean.core_wait /= ranks;
  for (Picoseconds& exposed : mean.exposed) mean.exposed_total += exposed /= ranks;
  mean.bubble = timeline.step_end - timeline.step_begin - mean.compute - mean.core_wait - mean.exposed_total;
  return mean;
}

}  // namespace stretto
