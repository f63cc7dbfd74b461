#include "model/schedule/solo.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace stretto {
namespace {

// Returns whether the wait, of operation `op` of a call that begins at `begin`, is for an earlier operation of the
// call.
bool is_inside(const BoundWait& wait, std::uint32_t begin, std::uint32_t op) {
  return wait.steps_ago == 0 && begin <= wait.op && wait.op < op;
}

// Returns whether the awaited operation is over when the first operation of the call starts: it stands earlier in the
// first operation's lane, or before something that has to finish first.
bool is_over(const BoundProgram& program, const BoundWait& wait, std::uint32_t begin) {
  if (wait.kind != EdgeKind::finish_start) return false;
  const BoundOp& first = program.ops[begin];
  if (wait.lane == first.lane && (wait.steps_ago > 0 || wait.position < first.position)) return true;
  return std::any_of(program.waits.begin() + first.wait_begin, program.waits.begin() + first.wait_end,
                     [&](const BoundWait& earlier) {
                       return earlier.kind == EdgeKind::finish_start && earlier.lane == wait.lane &&
                              (earlier.steps_ago < wait.steps_ago ||
                               (earlier.steps_ago == wait.steps_ago && earlier.position >= wait.position));
                     });
}

// Waits inside a block are equal in all calls, but waits for earlier operations are not. A call is like `like`, a solo
// call of the same operations, when its operations wait inside the call for the same ones as there, and all other
// awaited operations are over.
bool has_equal_waits(const BoundProgram& program, std::uint32_t begin, std::uint32_t like, std::uint32_t count) {
  for (std::uint32_t i = 1; i < count; ++i) {
    const BoundOp &mine = program.ops[begin + i], &other = program.ops[like + i];
    if (mine.wait_begin == mine.wait_end && other.wait_begin == other.wait_end) continue;
    const auto equal = [&](const BoundWait& a, const BoundWait& b) {
      if (!is_inside(a, begin, begin + i)) return !is_inside(b, like, like + i) && is_over(program, a, begin);
      return a.kind == b.kind && a.lane == b.lane && a.steps_ago == b.steps_ago && a.op - begin == b.op - like;
    };
    if (!std::equal(program.waits.begin() + mine.wait_begin, program.waits.begin() + mine.wait_end,
                    program.waits.begin() + other.wait_begin, program.waits.begin() + other.wait_end, equal))
      return false;
  }
  return true;
}

// The messages of a program to itself, in issue order.
class OwnMessages {
 public:
  OwnMessages(const BoundProgram& program, const Counterparts& counterparts)
      : program_(program), counterparts_(counterparts) {}

  // Returns whether every send has its receive.
  bool is_paired() const { return open_ == 0; }

  void issue(std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i) {
      const std::uint32_t number = number_of(i);
      if (number >= Counterparts::kOthers) continue;
      std::int64_t& ahead = ahead_[number];
      open_ -= ahead != 0;
      ahead += is_send(i) ? 1 : -1;
      open_ += ahead != 0;
    }
  }

  // Returns [operation of the call] → the other end; an operation that is no message is its own end. Empty when the
  // call, issued when all messages were paired, leaves some messages unpaired.
  std::vector<std::uint32_t> pair_up(std::uint32_t begin, std::uint32_t end) const {
    std::vector<std::uint32_t> other_end;
    std::map<std::uint32_t, std::array<std::vector<std::uint32_t>, 2>> ends;  // number → receives, sends
    for (std::uint32_t i = begin; i < end; ++i) {
      other_end.push_back(i - begin);
      if (number_of(i) < Counterparts::kOthers) ends[number_of(i)][is_send(i)].push_back(i - begin);
    }
    for (const auto& [number, sides] : ends) {
      if (sides[0].size() != sides[1].size()) return {};
      for (std::size_t n = 0; n < sides[0].size(); ++n) {
        other_end[sides[0][n]] = sides[1][n];
        other_end[sides[1][n]] = sides[0][n];
      }
    }
    return other_end;
  }

 private:
  std::uint32_t number_of(std::uint32_t op) const { return counterparts_.of[program_.ops[op].op]; }
  bool is_send(std::uint32_t op) const { return std::get<PointToPoint>(program_.work_of(op)).is_send; }

  const BoundProgram& program_;
  const Counterparts& counterparts_;
  std::map<std::uint32_t, std::int64_t> ahead_;  // number → sends minus receives
  std::size_t open_ = 0;                         // numbers with unpaired messages
};

// Returns the shape of a call; `lanes` is empty when it is not a solo call.
SoloShape shape_of(const BoundProgram& program, const Counterparts& counterparts, std::uint32_t begin,
                   std::uint32_t end) {
  SoloShape shape;
  shape.count = end - begin;
  shape.last_lane = program.ops[end - 1].lane;
  std::vector<SoloShape::OnLane> lanes;
  for (std::uint32_t i = begin; i < end; ++i) {
    const BoundOp& op = program.ops[i];
    if (counterparts.of[op.op] == Counterparts::kOthers || op.joined) return shape;
    bool waits_inside = false;
    for (std::uint32_t w = op.wait_begin; w < op.wait_end && i > begin; ++w) {
      const bool inside = is_inside(program.waits[w], begin, i);
      if (!inside && !is_over(program, program.waits[w], begin)) return shape;
      waits_inside = waits_inside || inside;
    }
    const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) { return l.lane == op.lane; });
    if (found != lanes.end()) {
      ++found->count;
    } else {
      if (i > begin && !waits_inside) return shape;
      lanes.push_back({op.lane, i - begin, 1});
    }
  }
  shape.lanes = std::move(lanes);
  return shape;
}

std::size_t index_of(const SoloShape& shape, LaneId lane) {
  std::size_t index = 0;
  while (shape.lanes[index].lane != lane) ++index;
  return index;
}

}  // namespace

Counterparts counterparts_of(const Schedule& schedule, const Partners& partners, std::size_t program) {
  Counterparts counterparts{std::vector<std::uint32_t>(schedule.operations.size(), Counterparts::kNobody)};
  for (OpId id = 0; id < schedule.operations.size(); ++id) {
    const std::uint32_t route = partners.route_of[program][id];
    if (route != Partners::kNone) {
      counterparts.of[id] = partners.routes[route].from == partners.routes[route].to ? route : Counterparts::kOthers;
    } else if (const auto* collective = std::get_if<Collective>(&schedule.operations[id].work)) {
      const std::uint32_t instance = partners.instance_of[program][collective->communicator];
      if (instance == Partners::kNone || partners.instances[instance].members.size() > 1)
        counterparts.of[id] = Counterparts::kOthers;
    }
  }
  return counterparts;
}

SoloCalls find_solo_calls(const Schedule& schedule, const BoundProgram& program, const Counterparts& counterparts) {
  SoloCalls calls;
  calls.at.resize(program.ops.size());
  struct Known {
    std::uint16_t shape = 0;  // index + 1
    std::uint32_t begin = 0;  // begin of the call in which the shape was found
  };
  std::map<std::array<std::uint32_t, 3>, Known> known;  // (block, first, count), of solo calls only
  OwnMessages messages(program, counterparts);
  std::uint32_t begin = 0, end = 0;
  for (const Call& call : schedule.programs[program.role].order) {
    begin = end;
    end += call.count;
    if (call.count == 0) continue;
    const auto find_shape = [&]() -> std::uint16_t {
      if (call.count == 1 || !messages.is_paired()) return 0;
      const std::array<std::uint32_t, 3> key = {call.block, call.first, call.count};
      if (const auto found = known.find(key); found != known.end())
        return has_equal_waits(program, begin, found->second.begin, call.count) ? found->second.shape : 0;
      SoloShape shape = shape_of(program, counterparts, begin, end);
      shape.other_end = messages.pair_up(begin, end);
      if (shape.lanes.empty() || shape.other_end.empty() ||
          calls.shapes.size() == std::numeric_limits<std::uint16_t>::max())
        return 0;
      calls.shapes.push_back(std::move(shape));
      known.emplace(key, Known{static_cast<std::uint16_t>(calls.shapes.size()), begin});
      return static_cast<std::uint16_t>(calls.shapes.size());
    };
    calls.at[begin] = find_shape();
    // A solo call leaves all messages paired, as they were.
    if (calls.at[begin] == 0) messages.issue(begin, end);
  }
  // In the next step the sends would meet other receives.
  if (!messages.is_paired()) return {{}, std::vector<std::uint16_t>(program.ops.size())};
  return calls;
}

bool is_waited_for(const BoundProgram& program, std::uint32_t op, const SoloShape& shape) {
  const std::uint32_t last = program.ops[op + shape.count - 1].position, end = op + shape.count;
  const auto is_for_last = [&](const BoundWait& wait) {
    return wait.lane == shape.last_lane && wait.position >= last &&
           (wait.kind == EdgeKind::finish_start || wait.position > last);
  };
  // Follows waits and lanes back from an operation after the call: an operation that starts after a waiting one waits
  // too.
  const auto waits_for_last = [&](std::uint32_t after) {
    constexpr std::size_t kMost = 12;  // operations to look at: a few calls
    std::array<std::uint32_t, kMost> found = {after};
    std::size_t count = 1;
    const auto add = [&](std::uint32_t before) {
      const auto known = found.begin() + static_cast<std::ptrdiff_t>(count);
      if (before >= end && count < kMost && std::find(found.begin(), known, before) == known) found[count++] = before;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const BoundOp& of = program.ops[found[i]];
      for (std::uint32_t w = of.wait_begin; w < of.wait_end; ++w) {
        const BoundWait& wait = program.waits[w];
        if (wait.steps_ago != 0) continue;
        if (is_for_last(wait)) return true;
        add(wait.op);
      }
      if (of.position > 0) add(program.lanes[of.lane][of.position - 1]);
    }
    return false;
  };
  return std::all_of(shape.lanes.begin(), shape.lanes.end(), [&](const SoloShape::OnLane& on) {
    if (on.lane == shape.last_lane) return true;
    const std::uint32_t next = program.ops[op + on.first].position + on.count;
    return next < program.lanes[on.lane].size() && waits_for_last(program.lanes[on.lane][next]);
  });
}

namespace {

// Runs the operations of a solo call in the order in which the verifier would run them one by one.
class Inside {
 public:
  Inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape)
      : program_(program),
        begin_(op),
        shape_(shape),
        lane_(shape.count),
        in_lane_(shape.count),
        ops_(shape.lanes.size()),
        started_(shape.lanes.size()),
        finished_(shape.lanes.size()),
        last_row_(shape.lanes.size()) {
    clocks_.row.resize(shape.count);
    clocks_.finished.resize(shape.lanes.size());
    for (std::uint32_t i = 0; i < shape.count; ++i) {
      lane_[i] = index_of(shape, program.ops[op + i].lane);
      in_lane_[i] = static_cast<std::uint32_t>(ops_[lane_[i]].size());
      ops_[lane_[i]].push_back(i);
    }
  }

  SoloClocks run() {
    std::uint32_t left = shape_.count;
    while (left > 0) {
      std::uint32_t next = shape_.count;  // the first operation that can move
      for (std::size_t l = 0; l < ops_.size(); ++l)
        if (finished_[l] < ops_[l].size() && ops_[l][finished_[l]] < next && can_move(ops_[l][finished_[l]]))
          next = ops_[l][finished_[l]];
      if (next == shape_.count) return {};
      if (!has_started(next)) start(next);
      if (has_started(shape_.other_end[next])) {
        finish(next);
        --left;
      }
    }
    clocks_.last = last_row_;
    return std::move(clocks_);
  }

 private:
  bool has_started(std::uint32_t i) const { return started_[lane_[i]] > in_lane_[i]; }
  bool has_finished(std::uint32_t i) const { return finished_[lane_[i]] > in_lane_[i]; }

  // Calls visit(operation of the call that `i` waits for, kind).
  template <class Visit>
  void for_each_wait(std::uint32_t i, const Visit& visit) const {
    const BoundOp& op = program_.ops[begin_ + i];
    for (std::uint32_t w = op.wait_begin; w < op.wait_end && i > 0; ++w)
      if (is_inside(program_.waits[w], begin_, begin_ + i))
        visit(program_.waits[w].op - begin_, program_.waits[w].kind);
  }

  bool can_move(std::uint32_t i) const {
    if (has_started(i)) return has_started(shape_.other_end[i]);
    bool can = true;
    for_each_wait(i, [&](std::uint32_t on, EdgeKind kind) {
      can = can && (kind == EdgeKind::finish_start ? has_finished(on) : has_started(on));
    });
    return can;
  }

  void start(std::uint32_t i) {
    clocks_.row[i] = last_row_[lane_[i]];
    // Every lane but the first begins with a row of its own: it has at least learnt the progress of the first lane.
    bool is_new = lane_[i] != 0 && in_lane_[i] == 0;
    std::vector<std::uint32_t> knows = row(clocks_.row[i]);
    for_each_wait(i, [&](std::uint32_t on, EdgeKind kind) {
      const bool has_ended = kind == EdgeKind::finish_start;
      is_new |= learn(knows, lane_[i], clocks_.row[on]);
      is_new |= learn(knows, lane_[i], lane_[on], in_lane_[on] + has_ended);
    });
    if (is_new) clocks_.row[i] = add(knows);
    ++started_[lane_[i]];
  }

  void finish(std::uint32_t i) {
    // A message is about the folded rank that sent it, so the clock does not change.
    last_row_[lane_[i]] = clocks_.row[i];
    ++finished_[lane_[i]];
    if (!clocks_.order.empty() && clocks_.order.back().first + clocks_.order.back().count == i)
      ++clocks_.order.back().count;
    else
      clocks_.order.push_back({i, 1});
  }

  std::vector<std::uint32_t> row(std::uint32_t number) const {
    const auto at = clocks_.finished.begin() + static_cast<std::ptrdiff_t>(number * ops_.size());
    return {at, at + static_cast<std::ptrdiff_t>(ops_.size())};
  }
  std::uint32_t add(const std::vector<std::uint32_t>& knows) {
    clocks_.finished.insert(clocks_.finished.end(), knows.begin(), knows.end());
    return static_cast<std::uint32_t>(clocks_.finished.size() / ops_.size()) - 1;
  }
  // Updates the knowledge of an operation of lane `own`, except about its own lane. Returns whether anything is new.
  static bool learn(std::vector<std::uint32_t>& knows, std::size_t own, std::size_t lane, std::uint32_t finished) {
    if (lane == own || knows[lane] >= finished) return false;
    knows[lane] = finished;
    return true;
  }
  bool learn(std::vector<std::uint32_t>& knows, std::size_t own, std::uint32_t from) const {
    bool is_new = false;
    for (std::size_t l = 0; l < ops_.size(); ++l)
      is_new |= learn(knows, own, l, clocks_.finished[from * ops_.size() + l]);
    return is_new;
  }

  const BoundProgram& program_;
  const std::uint32_t begin_;
  const SoloShape& shape_;
  SoloClocks clocks_;
  std::vector<std::size_t> lane_;                  // [operation] index in the shape of the operation's lane
  std::vector<std::uint32_t> in_lane_;             // [operation] position among the operations of its lane
  std::vector<std::vector<std::uint32_t>> ops_;    // [lane]
  std::vector<std::uint32_t> started_, finished_;  // [lane]
  std::vector<std::uint32_t> last_row_;            // [lane] row of what is known when its last operation has finished
};

}  // namespace

SoloClocks clocks_inside(const BoundProgram& program, std::uint32_t op, const SoloShape& shape) {
  return Inside(program, op, shape).run();
}

}  // namespace stretto
