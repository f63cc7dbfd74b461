#include "model/schedule/happens_before.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace stretto {
namespace {

struct LaneState {
  std::uint32_t started = 0, finished = 0;  // operations, counted over all steps
  std::uint32_t total = 0;
  std::uint32_t head = 0;  // the next to finish, as step · ops + op
};

class Executor {
 public:
  Executor(const Schedule& schedule, const Rendezvous& rendezvous, HappensBefore& clocks)
      : schedule_(schedule), rendezvous_(rendezvous), clocks_(clocks), programs_(clocks.programs) {
    components_ = programs_.size() * clocks_.lanes;
    clocks_.rows.assign(components_, 0);  // row 0: nothing is known
    lanes_.resize(components_);
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      clocks_.order.emplace_back().reserve(programs_[p].ops.size() * kUnrolledSteps);
      clocks_.before_row.emplace_back(programs_[p].ops.size() * kUnrolledSteps, 0);
      clocks_.after_row.emplace_back(programs_[p].ops.size() * kUnrolledSteps, 0);
      for (LaneId lane = 0; lane < clocks_.lanes; ++lane) {
        const auto& ops = programs_[p].lanes[lane];
        state(p, lane).total = static_cast<std::uint32_t>(ops.size()) * kUnrolledSteps;
        if (!ops.empty()) state(p, lane).head = ops.front();
      }
    }
  }

  void run() {
    // Nothing that can run is ever disabled by something else that runs, so that any choice comes to the same end.
    // Issue order, where lanes and waits leave it open, makes violations read as the program was meant.
    bool progress = true;
    while (progress) {
      progress = false;
      for (std::size_t p = 0; p < programs_.size(); ++p)
        while (advance(p)) progress = true;
    }
    clocks_.deadlock = describe_blocked();
  }

 private:
  LaneState& state(std::size_t p, LaneId lane) { return lanes_[p * clocks_.lanes + lane]; }
  const LaneState& state(std::size_t p, LaneId lane) const { return lanes_[p * clocks_.lanes + lane]; }

  Instance at(std::size_t p, LaneId lane, std::uint32_t position) const {
    const auto& ops = programs_[p].lanes[lane];
    const auto size = static_cast<std::uint32_t>(ops.size());
    const std::uint32_t step = position / size;
    return {ops[position - step * size], step};
  }
  std::size_t index(std::size_t p, Instance i) const { return i.step * programs_[p].ops.size() + i.op; }

  bool is_met(std::size_t p, const BoundWait& wait, std::uint32_t step) const {
    if (wait.steps_ago > step) return true;
    const LaneState& lane = state(p, wait.lane);
    const std::uint32_t target = clocks_.position(p, {wait.op, step - wait.steps_ago});
    return (wait.kind == EdgeKind::finish_start ? lane.finished : lane.started) > target;
  }

  const BoundWait* first_unmet(std::size_t p, Instance i) const {
    const BoundOp& op = programs_[p].ops[i.op];
    for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w)
      if (!is_met(p, programs_[p].waits[w], i.step)) return &programs_[p].waits[w];
    return nullptr;
  }

  // Moves the first operation in issue order that can move.
  bool advance(std::size_t p) {
    const auto size = programs_[p].ops.size();
    std::size_t tried = 0;  // heads before this one (step · ops + op) cannot move
    while (true) {
      std::size_t next = size * kUnrolledSteps;
      LaneId next_lane = 0;
      for (LaneId lane = 0; lane < clocks_.lanes; ++lane) {
        const LaneState& me = state(p, lane);
        if (me.finished == me.total || me.head < tried || me.head >= next) continue;
        next = me.head;
        next_lane = lane;
      }
      if (next == size * kUnrolledSteps) return false;
      if (advance(p, next_lane)) return true;
      tried = next + 1;
    }
  }

  // Arrives at, and if nothing else is missing finishes, the head of a lane.
  bool advance(std::size_t p, LaneId lane) {
    LaneState& me = state(p, lane);
    const auto ops = static_cast<std::uint32_t>(programs_[p].ops.size());
    static_assert(kUnrolledSteps == 2);
    const bool is_second_step = me.head >= ops;
    const Instance i{is_second_step ? me.head - ops : me.head, is_second_step ? 1u : 0u};
    const bool arrives = me.started == me.finished;
    if (arrives && !arrive(p, lane, i)) return false;
    const MeetingSlot slot = rendezvous_.slots[p][i.op];
    switch (slot.kind) {
      case MeetingSlot::Kind::none:
        finish(p, lane, i, clocks_.before_row[p][index(p, i)]);
        return true;
      case MeetingSlot::Kind::collective: {
        const CollectiveGroup& group = rendezvous_.groups[slot.group];
        if (absent_member(group, {slot.index, i.step}) != group.members.size()) return arrives;
        complete(group, {slot.index, i.step});
        return true;
      }
      case MeetingSlot::Kind::send:
      case MeetingSlot::Kind::receive:
        return complete_message(p, lane, i, slot) || arrives;
    }
    return false;
  }

  // The operation at the head of the lane starts, with those joined to it, when all waits of all of them are met.
  bool arrive(std::size_t p, LaneId lane, Instance i) {
    LaneState& me = state(p, lane);
    const std::uint32_t position = clocks_.position(p, i);
    std::uint32_t end = position + 1;  // of the group
    while (end < (i.step + 1) * programs_[p].lanes[lane].size() && programs_[p].ops[at(p, lane, end).op].joined) ++end;
    for (std::uint32_t n = position; n < end; ++n)
      if (first_unmet(p, at(p, lane, n))) return false;
    std::uint32_t row = 0;
    for (std::uint32_t n = position; n < end; ++n) row = start_row(p, lane, at(p, lane, n), n == position, row);
    for (std::uint32_t n = position; n < end; ++n) clocks_.before_row[p][index(p, at(p, lane, n))] = row;
    me.started = end;
    return true;
  }

  // The other end of a message: program and instance.
  std::pair<std::uint32_t, Instance> other_end(MeetingSlot slot, std::uint32_t step) const {
    const MessagePair& pair = rendezvous_.pairs[slot.group];
    return slot.kind == MeetingSlot::Kind::send ? std::pair(pair.to, Instance{pair.receives[slot.index], step})
                                                : std::pair(pair.from, Instance{pair.sends[slot.index], step});
  }

  // Each end finishes by itself, and knows then that the other had started.
  bool complete_message(std::size_t p, LaneId lane, Instance i, MeetingSlot slot) {
    const auto [other, theirs] = other_end(slot, i.step);
    const LaneId on = programs_[other].ops[theirs.op].lane;
    const std::uint32_t position = clocks_.position(other, theirs);
    if (state(other, on).started <= position) return false;
    const std::uint32_t row = copy_of(clocks_.before_row[p][index(p, i)]);
    // Their before_row knows what had finished when their group started; of their own lane that is less than
    // `position` where the message is joined to others.
    join(row, clocks_.before_row[other][index(other, theirs)], other, on, clocks_.finished_before(other, theirs, on));
    // Operations of a lane finish in order.
    if (state(p, lane).finished > 0) {
      const Instance previous = at(p, lane, state(p, lane).finished - 1);
      join(row, clocks_.after_row[p][index(p, previous)], p, lane, state(p, lane).finished);
    }
    finish(p, lane, i, row);
    return true;
  }

  void finish(std::size_t p, LaneId lane, Instance i, std::uint32_t row) {
    clocks_.after_row[p][index(p, i)] = row;
    clocks_.order[p].push_back(i);
    clocks_.sequence.push_back(static_cast<std::uint32_t>(p));
    LaneState& me = state(p, lane);
    if (++me.finished < me.total) me.head = static_cast<std::uint32_t>(index(p, at(p, lane, me.finished)));
  }

  // `which`: index in the group's sequence, and step. The number of members when all have arrived.
  std::size_t absent_member(const CollectiveGroup& group, Instance which) const {
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const std::uint32_t p = group.members[m];
      const Instance i{group.sequence[m][which.op], which.step};
      if (state(p, programs_[p].ops[i.op].lane).started <= clocks_.position(p, i)) return m;
    }
    return group.members.size();
  }

  void complete(const CollectiveGroup& group, Instance which) {
    std::uint32_t row = 0;
    if (group.members.size() > 1) {
      row = copy_of(0);
      for (std::size_t m = 0; m < group.members.size(); ++m) {
        const std::uint32_t p = group.members[m];
        const Instance i{group.sequence[m][which.op], which.step};
        join(row, clocks_.before_row[p][index(p, i)], p, programs_[p].ops[i.op].lane, clocks_.position(p, i));
      }
    }
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const std::uint32_t p = group.members[m];
      const Instance i{group.sequence[m][which.op], which.step};
      finish(p, programs_[p].ops[i.op].lane, i, group.members.size() > 1 ? row : clocks_.before_row[p][index(p, i)]);
    }
  }

  std::uint32_t copy_of(std::uint32_t row) {
    const std::size_t from = row * components_, to = clocks_.rows.size();
    clocks_.rows.resize(to + components_);
    std::copy_n(clocks_.rows.begin() + static_cast<std::ptrdiff_t>(from), components_,
                clocks_.rows.begin() + static_cast<std::ptrdiff_t>(to));
    return static_cast<std::uint32_t>(to / components_);
  }

  // `from` is the row of an operation of (p, lane), of whose lane `finished` operations have finished.
  void join(std::uint32_t into, std::uint32_t from, std::size_t p, LaneId lane, std::uint32_t finished) {
    std::uint32_t* to = &clocks_.rows[into * components_];
    const std::uint32_t* other = &clocks_.rows[from * components_];
    for (std::size_t c = 0; c < components_; ++c) to[c] = std::max(to[c], other[c]);
    std::uint32_t& own = to[p * clocks_.lanes + lane];
    own = std::max(own, finished);
  }

  // What is known when `i` starts: of a group of joined operations, the row grows from the first to the last.
  std::uint32_t start_row(std::size_t p, LaneId lane, Instance i, bool is_first, std::uint32_t row) {
    const std::uint32_t position = state(p, lane).finished;
    if (is_first) row = position == 0 ? 0 : clocks_.after_row[p][index(p, at(p, lane, position - 1))];
    bool is_mine = false;
    const BoundOp& op = programs_[p].ops[i.op];
    for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
      const BoundWait& wait = programs_[p].waits[w];
      if (wait.steps_ago > i.step || wait.lane == lane) continue;
      const Instance on{wait.op, i.step - wait.steps_ago};
      const std::uint32_t target = clocks_.position(p, on);
      // What has finished brought all that came before it along, so nothing is new.
      if (clocks_.rows[row * components_ + p * clocks_.lanes + wait.lane] > target) continue;
      if (!is_mine) row = copy_of(row);
      is_mine = true;
      if (wait.kind == EdgeKind::finish_start)
        join(row, clocks_.after_row[p][index(p, on)], p, wait.lane, target + 1);
      else
        join(row, clocks_.before_row[p][index(p, on)], p, wait.lane, target);
    }
    return row;
  }

  struct Blocked {
    std::size_t on_program = 0;
    LaneId on_lane = 0;
    std::string text;
  };

  std::string lane_name(std::size_t p, LaneId lane) const {
    const std::string name = "lane " + schedule_.lanes[lane].name;
    return programs_.size() > 1 ? "rank " + std::to_string(programs_[p].rank) + " " + name : name;
  }

  // Why the head of a lane that is not done cannot go on.
  Blocked blocked(std::size_t p, LaneId lane) const {
    const LaneState& me = state(p, lane);
    const Instance i = at(p, lane, me.finished);
    const std::string head = label(schedule_, programs_[p].ops[i.op]) + " (" + lane_name(p, lane) + ")";
    if (me.started == me.finished) {
      // Of the operation itself, or of one that is joined to it.
      std::uint32_t n = me.finished;
      while (!first_unmet(p, at(p, lane, n))) ++n;
      const BoundWait& wait = *first_unmet(p, at(p, lane, n));
      return {p, wait.lane,
              head + " waits for the " + (wait.kind == EdgeKind::finish_start ? "finish" : "start") + " of " +
                  label(schedule_, programs_[p].ops[wait.op]) + (wait.steps_ago > 0 ? " of the step before" : "") +
                  behind(p, wait.lane, {wait.op, i.step - wait.steps_ago})};
    }
    const MeetingSlot slot = rendezvous_.slots[p][i.op];
    std::uint32_t other = 0;
    Instance theirs;
    if (slot.kind == MeetingSlot::Kind::collective) {
      const CollectiveGroup& group = rendezvous_.groups[slot.group];
      const std::size_t m = absent_member(group, {slot.index, i.step});
      other = group.members[m];
      theirs = {group.sequence[m][slot.index], i.step};
    } else {
      std::tie(other, theirs) = other_end(slot, i.step);
    }
    const LaneId on = programs_[other].ops[theirs.op].lane;
    return {other, on, head + " waits for rank " + std::to_string(programs_[other].rank) + behind(other, on, theirs)};
  }

  std::string behind(std::size_t p, LaneId lane, Instance target) const {
    const Instance head = at(p, lane, state(p, lane).finished);
    if (head.op == target.op && head.step == target.step) return "";
    return ", which stands behind " + label(schedule_, programs_[p].ops[head.op]) + " in " + lane_name(p, lane);
  }

  std::string describe_blocked() const {
    std::size_t stuck = 0;
    while (stuck < lanes_.size() && lanes_[stuck].finished == lanes_[stuck].total) ++stuck;
    if (stuck == lanes_.size()) return "";
    // Every blocked lane waits for another, so that following them comes round to one seen before.
    std::vector<std::size_t> path;
    std::vector<std::string> texts;
    auto seen = path.end();
    while ((seen = std::find(path.begin(), path.end(), stuck)) == path.end()) {
      const Blocked next = blocked(stuck / clocks_.lanes, static_cast<LaneId>(stuck % clocks_.lanes));
      path.push_back(stuck);
      texts.push_back(next.text);
      stuck = next.on_program * clocks_.lanes + next.on_lane;
    }
    const auto begin = static_cast<std::size_t>(seen - path.begin());
    std::string message = "deadlock, a cycle of " + std::to_string(path.size() - begin) + ": ";
    for (std::size_t i = begin; i < texts.size(); ++i) message += (i > begin ? "; " : "") + texts[i];
    constexpr std::size_t kOthers = 4;  // enough to see what else hangs; the cycle is the cause
    std::size_t shown = 0;
    for (std::size_t l = 0; l < lanes_.size() && shown < kOthers; ++l) {
      if (lanes_[l].finished == lanes_[l].total ||
          std::find(path.begin() + static_cast<std::ptrdiff_t>(begin), path.end(), l) != path.end())
        continue;
      message += (shown++ == 0 ? ". Behind it: " : "; ");
      message += blocked(l / clocks_.lanes, static_cast<LaneId>(l % clocks_.lanes)).text;
    }
    return message;
  }

  const Schedule& schedule_;
  const Rendezvous& rendezvous_;
  HappensBefore& clocks_;
  std::span<const BoundProgram> programs_;
  std::size_t components_ = 0;
  std::vector<LaneState> lanes_;  // [program · lanes + lane]
};

}  // namespace

std::uint32_t HappensBefore::position(std::size_t program, Instance at) const {
  const BoundOp& op = programs[program].ops[at.op];
  return at.step * static_cast<std::uint32_t>(programs[program].lanes[op.lane].size()) + op.position;
}

const std::uint32_t* HappensBefore::known(std::size_t program, Instance at) const {
  const std::size_t row = before_row[program][at.step * programs[program].ops.size() + at.op];
  return &rows[(row * programs.size() + program) * lanes];
}

std::uint32_t HappensBefore::finished_before(std::size_t program, Instance at, LaneId lane) const {
  const BoundProgram& bound = programs[program];
  const BoundOp& op = bound.ops[at.op];
  if (op.lane != lane) return known(program, at)[lane];
  // What is joined to it starts with it.
  std::uint32_t first = op.position;
  while (first > 0 && bound.ops[bound.lanes[lane][first]].joined) --first;
  return position(program, at) - (op.position - first);
}

HappensBefore order_steps(const Schedule& schedule, std::span<const BoundProgram> programs,
                          const Rendezvous& rendezvous) {
  HappensBefore clocks;
  clocks.programs = programs;
  clocks.lanes = schedule.lanes.size();
  Executor(schedule, rendezvous, clocks).run();
  return clocks;
}

}  // namespace stretto
