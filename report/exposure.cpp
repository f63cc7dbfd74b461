#include "report/exposure.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/values_of.hpp"
#include "report/lane_windows.hpp"
#include "report/lost_time.hpp"

namespace stretto {
namespace {

// Compares rows that are in order of (rank, op).
struct RankOrder {
  bool operator()(const TimelineRow& row, std::int64_t rank) const { return row.rank < rank; }
  bool operator()(std::int64_t rank, const TimelineRow& row) const { return rank < row.rank; }
};

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr int kSteps = LaneWindows::kSteps;
constexpr std::int64_t kNothing = -1, kAll = std::numeric_limits<std::int64_t>::max();

// Accounts for one rank's step, from beginning to end.
class Accounting {
 public:
  Accounting(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline)
      : schedule_(schedule), program_(program), period_(timeline.step_end - timeline.step_begin) {
    result_.exposed.assign(schedule.communicators.size(), 0);
    for (const Operation& operation : schedule.operations)
      communicator_.push_back(is_communication(operation.work) ? communicator_of(operation.work) : kNobody);
    const auto [begin, end] = std::equal_range(timeline.rows.begin(), timeline.rows.end(), program_.rank, RankOrder{});
    rows_ = {std::to_address(begin), std::to_address(end)};
    assert(rows_.empty() || rows_.back().op < program_.ops.size());
    has_queues_ =
        std::any_of(schedule.lanes.begin(), schedule.lanes.end(), [](const Lane& lane) { return lane.queue >= 0; });
    collect();
    begin_with_compute(timeline.step_begin);
  }

  // Returns the stretches that run() of one step accounts for, apart from those in which the rank computes.
  std::vector<LostTime> run_for_lost_times(Picoseconds step_begin) {
    std::vector<LostTime> lost;
    lost_ = &lost;
    run({});
    lost_ = nullptr;
    std::sort(lost.begin(), lost.end(), [](const LostTime& a, const LostTime& b) { return a.begin < b.begin; });
    for (LostTime& one : lost) {
      one.begin -= step_begin;
      one.end -= step_begin;
    }
    return lost;
  }

  Breakdown run(Repeated repeated) {
    repeated.begin = last_at_work(repeated.begin);  // a wait is accounted for as a whole
    const Picoseconds repeated_end = repeated.begin + repeated.period;
    Breakdown before;  // up to the begin of the repeated part
    for (Picoseconds now = begin_; now < end_;) {
      if (repeated.times > 0 && now == repeated.begin) before = result_;
      if (repeated.times > 0 && now == repeated_end) repeat(before, repeated.times);
      // Up to `next` no compute lane changes its state.
      Picoseconds next = end_;
      if (repeated.times > 0 && now < repeated_end)
        next = std::min(end_, now < repeated.begin ? repeated.begin : repeated_end);
      bool computes = false, queues = false;
      for (ComputeLane& lane : compute_) {
        while (lane.end <= now && !lane.is_through) go_on(lane);
        if (lane.is_through) continue;
        if (now < lane.ready) {
          next = std::min(next, lane.ready);
        } else if (now < lane.start) {
          next = std::min(next, lane.start);
          queues = true;
        } else {
          next = std::min(next, lane.end);
          computes = true;
        }
      }
      if (computes) {
        result_.compute += next - now;
      } else if (queues) {
        result_.core_wait += next - now;
        lose(LossCause::core_wait, now, next);
      } else {
        wait(now, next);
      }
      now = next;
    }
    for (const Picoseconds exposed : result_.exposed) result_.exposed_total += exposed;
    return std::move(result_);
  }

 private:
  // Adds `times` of what has been accounted for since.
  void repeat(const Breakdown& before, std::int64_t times) {
    const auto add = [&](Picoseconds& part, Picoseconds was) { part += times * (part - was); };
    add(result_.compute, before.compute);
    add(result_.core_wait, before.core_wait);
    add(result_.queue_wait, before.queue_wait);
    add(result_.bubble, before.bubble);
    add(result_.host, before.host);
    for (std::size_t c = 0; c < result_.exposed.size(); ++c) add(result_.exposed[c], before.exposed[c]);
  }

  // A compute lane on its way through the step. Until `ready` it waits, until `start` it queues for cores, until `end`
  // it computes. All times are within the step.
  struct ComputeLane {
    std::vector<const TimelineRow*> rows;  // in the order of the lane
    std::size_t after = 0;                 // index of the next row
    int steps_ago = 0;                     // 1: rest of the previous step
    Picoseconds ready = 0, start = 0, end = 0;
    bool is_through = false;
  };
  // Returns the last moment up to `time` at which a compute lane was at work.
  Picoseconds last_at_work(Picoseconds time) const {
    Picoseconds last = begin_;
    for (const ComputeLane& lane : compute_) {
      const auto next = std::partition_point(lane.rows.begin(), lane.rows.end(),
                                             [&](const TimelineRow* row) { return row->end <= time; });
      if (next != lane.rows.end() && (*next)->ready <= time) return time;
      if (next != lane.rows.begin()) last = std::max(last, (*std::prev(next))->end);
    }
    return last;
  }

  // How far a lane must have come: [steps ago].
  struct Awaited {
    LaneId lane = 0;
    std::array<std::int64_t, kSteps> last{};  // position; kNothing, kAll
  };

  std::uint32_t communicator(std::uint32_t op) const { return communicator_[program_.ops[op].op]; }

  void collect() {
    std::vector<std::uint32_t> compute_of(program_.lanes.size(), kNobody);
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      if (schedule_.lanes[lane].kind != LaneKind::compute) continue;
      compute_of[lane] = static_cast<std::uint32_t>(compute_.size());
      compute_.emplace_back().rows.reserve(program_.lanes[lane].size());
    }
    for (std::vector<LaneWindows>* windows : {&transfers_, &queued_, &held_, &unissued_})
      windows->resize(program_.lanes.size());
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane)
      if (compute_of[lane] == kNobody) transfers_[lane].reserve(program_.lanes[lane].size());
    for (const TimelineRow& row : rows_) {
      const BoundOp& op = program_.ops[row.op];
      if (compute_of[op.lane] != kNobody) {
        compute_[compute_of[op.lane]].rows.push_back(&row);
        continue;
      }
      const std::uint32_t communicator = this->communicator(row.op);
      transfers_[op.lane].add({row.transfer, row.moved(), row.end, op.position, communicator, op.joined});
      if (row.start > row.ready)
        queued_[op.lane].add({row.ready, row.start, row.start, op.position, communicator, op.joined});
      if (const Interval held = has_queues_ ? held_by_queue(row) : Interval{}; held.begin < held.end)
        held_[op.lane].add({held.begin, held.end, held.end, op.position, communicator, false});
      if (const Picoseconds over = op.joined ? row.ready : waits_over(row); over < row.ready)
        unissued_[op.lane].add({over, row.ready, row.ready, op.position, communicator, false});
    }
  }

  // Moves the period of a step whose compute starts before the last operation of the previous step has ended
  // (parameters are still being gathered): the period starts with the step's compute, and the next step's compute fills
  // the rest. Other compute lanes may then still be busy with the previous step.
  void begin_with_compute(Picoseconds step_begin) {
    begin_ = step_begin;
    for (const ComputeLane& lane : compute_)
      if (!lane.rows.empty()) begin_ = std::min(begin_, lane.rows.front()->ready);
    end_ = begin_ + period_;
    for (ComputeLane& lane : compute_) {
      lane.end = begin_;
      // A lane is in order, so the lane whose operation begins the period has finished the previous step.
      if (compute_.size() == 1 || lane.rows.empty() || lane.rows.front()->ready == begin_) continue;
      const auto left = std::partition_point(lane.rows.begin(), lane.rows.end(),
                                             [&](const TimelineRow* row) { return row->end - period_ <= begin_; });
      if (left == lane.rows.end()) continue;
      lane.after = static_cast<std::size_t>(left - lane.rows.begin());
      lane.steps_ago = 1;
    }
  }

  // Moves to the lane's next operation. Clamping keeps the sum exact even for clocks that disagree by a tick.
  void go_on(ComputeLane& lane) const {
    if (lane.after == lane.rows.size()) {
      if (lane.steps_ago == 0) {
        lane.is_through = true;
        return;
      }
      lane.after = 0;
      lane.steps_ago = 0;
    }
    const TimelineRow& row = *lane.rows[lane.after++];
    const Picoseconds shift = lane.steps_ago * period_;
    lane.ready = std::clamp(row.ready - shift, lane.end, end_);
    lane.start = std::clamp(row.start - shift, lane.ready, end_);
    lane.end = std::clamp(row.end - shift, lane.start, end_);
  }

  // Returns the row, or nullptr where the timeline has none. Mostly it has all rows.
  const TimelineRow* row_of(std::uint32_t op) const {
    if (op < rows_.size() && rows_[op].op == op) return &rows_[op];
    const auto at = std::lower_bound(rows_.begin(), rows_.end(), op,
                                     [](const TimelineRow& r, std::uint32_t o) { return r.op < o; });
    return at != rows_.end() && at->op == op ? &*at : nullptr;
  }

  // Returns the time at which all waits of the operation were met and its lane was free. The first operation of a lane
  // in a step also waits for the end of the previous step, because the process does.
  Picoseconds waits_over(const TimelineRow& row) const {
    const BoundOp& op = program_.ops[row.op];
    Picoseconds over = std::numeric_limits<Picoseconds>::min();
    const auto consider = [&](std::uint32_t on, int steps_ago, bool is_end) {
      if (const TimelineRow* at = row_of(on))
        over = std::max(over, (is_end ? at->end : at->start) - steps_ago * period_);
    };
    if (op.position > 0) consider(program_.lanes[op.lane][op.position - 1], 0, true);
    for (const std::vector<std::uint32_t>& lane : program_.lanes)
      if (op.position == 0 && !lane.empty()) consider(lane.back(), 1, true);
    for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w)
      consider(program_.waits[w].op, program_.waits[w].steps_ago, program_.waits[w].kind == EdgeKind::finish_start);
    return over;
  }

  // Returns the interval in which the operation, with those joined to it, waited only for its hardware queue: until all
  // earlier operations of the queue had started. Empty when other waits ended later.
  Interval held_by_queue(const TimelineRow& row) const {
    const BoundOp& first = program_.ops[row.op];
    if (first.joined) return {};
    const std::vector<std::uint32_t>& lane = program_.lanes[first.lane];
    Interval held;
    held.begin = held.end = std::numeric_limits<Picoseconds>::min();
    const auto consider = [&](std::uint32_t op, int steps_ago, bool is_end, Picoseconds& until) {
      if (const TimelineRow* at = row_of(op))
        until = std::max(until, (is_end ? at->end : at->start) - steps_ago * period_);
    };
    consider(first.position > 0 ? lane[first.position - 1] : lane.back(), first.position > 0 ? 0 : 1, true, held.begin);
    for (std::size_t i = first.position; i == first.position || (i < lane.size() && program_.ops[lane[i]].joined); ++i)
      for (std::uint32_t w = program_.ops[lane[i]].wait_begin; w < program_.ops[lane[i]].wait_end; ++w) {
        const BoundWait& wait = program_.waits[w];
        const int queue = schedule_.lanes[wait.lane].queue;
        const bool is_start = wait.kind == EdgeKind::start_start;
        consider(wait.op, wait.steps_ago, !is_start,
                 is_start && queue >= 0 && queue == schedule_.lanes[first.lane].queue ? held.end : held.begin);
      }
    return held;
  }

  void lose(LossCause cause, Picoseconds from, Picoseconds to) const {
    if (lost_ != nullptr) lost_->push_back({from, to, cause});
  }
  Picoseconds take_as(LossCause cause, Picoseconds from, Picoseconds to) {
    return take(free_, from, to, [&](Picoseconds begin, Picoseconds end) { lose(cause, begin, end); });
  }

  // Charges the windows of the awaited lanes, the lowest first.
  void charge(std::vector<LaneWindows>& windows, std::span<Picoseconds> to, LossCause cause) {
    for (const Awaited& awaited : awaited_) {
      const auto seen = [&](const LaneWindows::Window& window, Picoseconds begin, Picoseconds end) {
        lose(cause, begin, end);
        if (lost_ == nullptr || cause != LossCause::exposed) return;
        lost_->back().communicator = window.communicator;
        lost_->back().op = program_.lanes[awaited.lane][window.position];
      };
      for (int steps_ago = kSteps - 1; steps_ago >= 0; --steps_ago)
        if (const std::int64_t last = awaited.last[static_cast<std::size_t>(steps_ago)]; last != kNothing)
          windows[awaited.lane].charge(free_, steps_ago, period_, last, to, seen);
    }
  }

  // Accounts for a time between `from` and `to` in which no compute lane computes or queues for cores, and unfinished
  // lanes wait.
  void wait(Picoseconds from, Picoseconds to) {
    bool is_tail = true;
    awaited_.clear();
    for (const ComputeLane& lane : compute_) {
      if (lane.is_through) continue;
      is_tail = false;
      await(program_.ops[lane.rows[lane.after - 1]->op], lane.steps_ago, 1 + lane.steps_ago, from);
    }
    // Communication that continues after all computation is exposed, too.
    for (LaneId lane = 0; is_tail && lane < program_.lanes.size(); ++lane)
      awaited_.push_back({lane, {kAll, kNothing, kNothing}});
    free_.assign(1, {from, to});
    charge(transfers_, result_.exposed, LossCause::exposed);
    charge(queued_, {&result_.core_wait, 1}, LossCause::core_wait);
    charge(held_, {&result_.queue_wait, 1}, LossCause::queue_wait);
    for (const ComputeLane& lane : compute_) {
      if (!has_queues_ || lane.is_through || free_.empty()) continue;
      const Interval held = held_by_queue(*lane.rows[lane.after - 1]);
      const Picoseconds shift = lane.steps_ago * period_;
      result_.queue_wait += take_as(LossCause::queue_wait, held.begin - shift, held.end - shift);
    }
    Picoseconds host = 0;
    charge(unissued_, {&host, 1}, LossCause::host);
    for (const ComputeLane& lane : compute_) {
      if (free_.empty()) break;
      if (lane.rows.empty() || (lane.is_through && !is_tail)) continue;
      // A finished lane has the first operation of the next step ahead.
      const TimelineRow& next = *lane.rows[lane.is_through ? 0 : lane.after - 1];
      const Picoseconds shift = lane.is_through ? -period_ : lane.steps_ago * period_;
      host += take_as(LossCause::host, waits_over(next) - shift, next.ready - shift);
    }
    result_.host += host;
    result_.bubble += host;
    for (const Interval& rest : free_) {
      result_.bubble += rest.end - rest.begin;
      lose(LossCause::bubble, rest.begin, rest.end);
    }
  }

  // Adds to `awaited_` the communication that an operation of `after` steps ago waits for, and, as long as it is not
  // over at `from`, the waits of that in turn. Earlier operations on the lane of an awaited operation are awaited as
  // well; of the steps before, up to `oldest`, all of them.
  void await(const BoundOp& op, int after, int oldest, Picoseconds from) {
    for (std::uint32_t i = op.wait_begin; i < op.wait_end; ++i) {
      const BoundWait& wait = program_.waits[i];
      const int steps_ago = wait.steps_ago + after;
      if (wait.kind != EdgeKind::finish_start || communicator(wait.op) == kNobody || steps_ago >= kSteps) continue;
      // A message is over when the messages that it is joined with are.
      const std::vector<std::uint32_t>& on = program_.lanes[wait.lane];
      std::int64_t position = wait.position;
      while (position + 1 < std::ssize(on) && program_.ops[on[static_cast<std::size_t>(position + 1)]].joined)
        ++position;
      auto at = std::find_if(awaited_.begin(), awaited_.end(), [&](const Awaited& a) { return a.lane >= wait.lane; });
      if (at == awaited_.end() || at->lane != wait.lane)
        at = awaited_.insert(at, {wait.lane, {kNothing, kNothing, kNothing}});
      std::int64_t& last = at->last[static_cast<std::size_t>(steps_ago)];
      const std::int64_t before = std::exchange(last, std::max(last, position));
      for (int step = steps_ago + 1; step <= oldest; ++step) at->last[static_cast<std::size_t>(step)] = kAll;
      for (; position > before; --position) {
        const TimelineRow* row = row_of(on[static_cast<std::size_t>(position)]);
        if (row == nullptr || row->end - steps_ago * period_ <= from) break;
        await(program_.ops[row->op], steps_ago, oldest, from);
      }
    }
  }

  const Schedule& schedule_;
  const BoundProgram& program_;
  std::span<const TimelineRow> rows_;        // rows of the rank, in order of op
  std::vector<std::uint32_t> communicator_;  // [OpId]; kNobody: a computation
  bool has_queues_ = false;
  Picoseconds period_ = 0, begin_ = 0, end_ = 0;
  std::vector<ComputeLane> compute_;
  std::vector<LaneWindows> transfers_;  // [lane]
  std::vector<LaneWindows> queued_;     // [lane]: waits for cores
  std::vector<LaneWindows> held_;       // [lane]: waits only for a hardware queue
  std::vector<LaneWindows> unissued_;   // [lane]: waits only to be issued
  std::vector<Awaited> awaited_;        // for one gap, by lane
  std::vector<Interval> free_;          // for one gap, time that has not been charged yet
  Breakdown result_;
  std::vector<LostTime>* lost_ = nullptr;  // null: only the sums are wanted
};

}  // namespace

Breakdown breakdown(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline) {
  return Accounting(schedule, program, timeline).run({});
}

const char* name_of(LossCause cause) {
  return name_in({"exposed", "core_wait", "queue_wait", "host", "bubble"}, cause);
}

std::vector<LostTime> lost_times(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline) {
  return Accounting(schedule, program, timeline).run_for_lost_times(timeline.step_begin);
}

namespace {

// The mean of times. Their sum may overflow: an hour on 2,600 ranks is 2^63 ps. So quotients and remainders are summed.
struct MeanTime {
  Picoseconds count = 1;
  Picoseconds quotients = 0, remainders = 0;

  void add(Picoseconds time) {
    quotients += time / count;
    remainders += time % count;
  }
  Picoseconds floor() const { return quotients + remainders / count; }
};

}  // namespace

Breakdown mean_breakdown(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                         const Repeated& repeated) {
  const auto ranks = static_cast<Picoseconds>(programs.size());
  MeanTime compute{ranks}, core_wait{ranks}, queue_wait{ranks}, host{ranks};
  std::vector<MeanTime> exposed(schedule.communicators.size(), MeanTime{ranks});
  for (const BoundProgram& program : programs) {
    const Breakdown one = Accounting(schedule, program, timeline).run(repeated);
    compute.add(one.compute);
    core_wait.add(one.core_wait);
    queue_wait.add(one.queue_wait);
    host.add(one.host);
    for (std::size_t i = 0; i < exposed.size(); ++i) exposed[i].add(one.exposed[i]);
  }
  Breakdown mean;
  mean.exposed.assign(schedule.communicators.size(), 0);
  if (programs.empty()) return mean;
  // Rounding down, with the remainders in bubble, keeps the sum exact and bubble non-negative.
  mean.compute = compute.floor();
  mean.core_wait = core_wait.floor();
  mean.queue_wait = queue_wait.floor();
  mean.host = host.floor();
  for (std::size_t i = 0; i < exposed.size(); ++i) mean.exposed_total += mean.exposed[i] = exposed[i].floor();
  mean.bubble = timeline.step_end - timeline.step_begin + repeated.longer() - mean.compute - mean.core_wait -
                mean.queue_wait - mean.exposed_total;
  return mean;
}

Picoseconds active_communication(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                 const Timeline& timeline, const Repeated& repeated) {
  MeanTime active{static_cast<Picoseconds>(programs.size())};
  if (programs.empty()) return 0;
  for (const BoundProgram& program : programs) {
    Picoseconds of_rank = 0;
    const auto [begin, end] = std::equal_range(timeline.rows.begin(), timeline.rows.end(), program.rank, RankOrder{});
    for (auto row = begin; row != end; ++row)
      if (is_communication(schedule.operations[program.ops[row->op].op].work))
        of_rank += repeated.count(*row) * (row->moved() - row->transfer);
    active.add(of_rank);
  }
  return active.floor();
}

}  // namespace stretto
