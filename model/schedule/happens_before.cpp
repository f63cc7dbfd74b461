#include "model/schedule/happens_before.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "model/schedule/solo.hpp"

namespace stretto {
namespace {

constexpr std::uint32_t kDone = ~std::uint32_t{0};

struct LaneState {
  std::span<const std::uint32_t> ops;       // operations of the program's lane
  std::uint32_t started = 0, finished = 0;  // operations, counted over all steps
  std::uint32_t step = 0, position = 0;     // the next operation to finish; position in the step
  std::uint32_t after = 0;                  // row of what is known when the last finished operation has finished
};

// Executes two steps, and notes for each operation what is known to have finished when it starts. Example of one
// program: lane 0 runs a and b, lane 1 runs c and d, and c waits for a. The clocks (finished on lane 0, finished on
// lane 1) are
//   first step:   a (0, 0)   b (1, 0)   c (1, 0)   d (1, 1)
//   second step:  a (2, 0)   b (3, 0)   c (3, 2)   d (3, 3)
// a is at position 0 of lane 0, and d knows of 1 operation there, position 0: a happens before d. b is at position 1,
// which d does not know of: nothing orders b and d, so they must not access one byte if one of them writes it. The same
// holds between steps: d of the first step is at position 1 of lane 1, and a of the second step knows of none there.
class AbstractRun {
 public:
  AbstractRun(const Schedule& schedule, const IssueOrder& issued, HappensBefore& clocks)
      : schedule_(schedule), issued_(issued), clocks_(clocks), programs_(clocks.programs), width_(clocks.lanes + 1) {
    clocks_.rows.assign(width_, 0);       // row 0: nothing is known
    others_.assign(programs_.size(), 0);  // row 0 of `others_` too: nothing is known
    known_.assign(clocks_.lanes, 0);
    lanes_.resize(programs_.size() * clocks.lanes);
    heads_.resize(lanes_.size(), kDone);
    arrived_.resize(issued.groups.size());
    std::size_t instances = 0;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      instances += programs_[p].ops.size() * kUnrolledSteps;
      clocks_.order.emplace_back();
      clocks_.before.emplace_back(programs_[p].ops.size() * kUnrolledSteps, 0);
      after_.emplace_back(programs_[p].ops.size() * kUnrolledSteps, 0);
      for (LaneId lane = 0; lane < clocks_.lanes; ++lane) {
        state(p, lane).ops = programs_[p].lanes[lane];
        if (!state(p, lane).ops.empty()) head(p, lane) = state(p, lane).ops.front();
      }
    }
    clocks_.rows.reserve(instances * width_);  // nearly all rows that will be needed; unused memory costs nothing
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      solos_.push_back(find_solo_calls(schedule, programs_[p], counterparts_of(schedule, issued.partners, p)));
      inside_.emplace_back(solos_.back().shapes.size());
    }
  }

  void run() {
    // An operation that can run is never disabled by another one, so every choice leads to the same end. Where lanes
    // and waits leave the order open, issue order makes violations read as the program was meant.
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

  // Returns the next operation of a lane to finish, as step · ops + op; kDone when there is none.
  std::uint32_t& head(std::size_t p, LaneId lane) { return heads_[p * clocks_.lanes + lane]; }

  UnrolledOp at(std::size_t p, LaneId lane, std::uint32_t position) const {
    const auto& ops = state(p, lane).ops;
    const auto size = static_cast<std::uint32_t>(ops.size());
    static_assert(kUnrolledSteps == 2);
    return position < size ? UnrolledOp{ops[position], 0} : UnrolledOp{ops[position - size], 1};
  }
  std::size_t index(std::size_t p, UnrolledOp i) const { return i.step * programs_[p].ops.size() + i.op; }
  std::uint32_t before(std::size_t p, UnrolledOp i) const { return clocks_.before[p][index(p, i)]; }

  bool is_met(std::size_t p, const BoundWait& wait, std::uint32_t step) const {
    if (wait.steps_ago > step) return true;
    const LaneState& lane = state(p, wait.lane);
    return (wait.kind == EdgeKind::finish_start ? lane.finished : lane.started) > target_of(p, wait, step);
  }
  // Returns the position of the awaited operation in its lane, counted over all steps.
  std::uint32_t target_of(std::size_t p, const BoundWait& wait, std::uint32_t step) const {
    return (step - wait.steps_ago) * static_cast<std::uint32_t>(state(p, wait.lane).ops.size()) + wait.position;
  }

  const BoundWait* first_unmet(std::size_t p, UnrolledOp i) const {
    const BoundProgram& program = programs_[p];
    const BoundOp& op = program.ops[i.op];
    for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w)
      if (!is_met(p, program.waits[w], i.step)) return &program.waits[w];
    return nullptr;
  }

  // Moves the first operation in issue order that can move, or its whole call.
  bool advance(std::size_t p) {
    std::uint32_t tried = 0;  // no head before this one can move
    while (true) {
      std::uint32_t next = kDone;
      LaneId next_lane = 0;
      for (LaneId lane = 0; lane < clocks_.lanes; ++lane) {
        const std::uint32_t candidate = head(p, lane);
        if (candidate < tried || candidate >= next) continue;
        next = candidate;
        next_lane = lane;
      }
      if (next == kDone) return false;
      if (advance(p, next_lane)) return true;
      tried = next + 1;
    }
  }

  // Lets the head of a lane arrive, and finish if nothing else is missing.
  bool advance(std::size_t p, LaneId lane) {
    LaneState& me = state(p, lane);
    const UnrolledOp i{me.ops[me.position], me.step};
    const bool arrives = me.started == me.finished;
    if (const std::uint16_t shape = solos_[p].at[i.op]; shape != 0 && arrives && run_solo(p, lane, i, shape - 1u))
      return true;
    if (arrives && !arrive(p, lane, i)) return false;
    const RendezvousSlot slot = issued_.slots[p][i.op];
    switch (slot.kind) {
      case RendezvousSlot::Kind::none:
        finish(p, lane, i, before(p, i));
        return true;
      case RendezvousSlot::Kind::collective: {
        const CollectiveGroup& group = issued_.groups[slot.group];
        if (group.members.size() == 1) {
          finish(p, lane, i, before(p, i));
          return true;
        }
        Arrived& arrived = arrived_[slot.group];
        if (arrived.at.op != slot.index || arrived.at.step != i.step) arrived = {{slot.index, i.step}, 0};
        arrived.members = absent_member(group, arrived.at, arrived.members);
        if (arrived.members != group.members.size()) return arrives;
        complete(group, {slot.index, i.step});
        return true;
      }
      case RendezvousSlot::Kind::send:
      case RendezvousSlot::Kind::receive:
        return complete_message(p, lane, i, slot) || arrives;
    }
    return false;
  }

  // Starts the operation at the head of the lane together with the operations joined to it, when all waits of all of
  // them are met.
  bool arrive(std::size_t p, LaneId lane, UnrolledOp i) {
    LaneState& me = state(p, lane);
    const BoundProgram& program = programs_[p];
    std::uint32_t end = me.position + 1;  // end of the group
    while (end < me.ops.size() && program.ops[me.ops[end]].joined) ++end;
    for (std::uint32_t n = me.position; n < end; ++n)
      if (first_unmet(p, {me.ops[n], i.step})) return false;
    std::uint32_t row = me.after;  // in a group of joined operations, the row grows from the first to the last
    for (std::uint32_t n = me.position; n < end; ++n) row = learn_from_waits(p, lane, {me.ops[n], i.step}, row);
    for (std::uint32_t n = me.position; n < end; ++n) clocks_.before[p][index(p, {me.ops[n], i.step})] = row;
    me.started += end - me.position;
    return true;
  }

  // Returns the clock at which `i` starts; `row` is the clock without its waits.
  std::uint32_t learn_from_waits(std::size_t p, LaneId lane, UnrolledOp i, std::uint32_t row) {
    bool is_mine = false;
    const BoundOp& op = programs_[p].ops[i.op];
    for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
      const BoundWait& wait = programs_[p].waits[w];
      if (wait.steps_ago > i.step || wait.lane == lane) continue;
      const std::uint32_t target = target_of(p, wait, i.step);
      // If the awaited operation is known to have finished, everything before it is known too, and the wait says
      // nothing new.
      if (clocks_.rows[row * width_ + wait.lane] > target) continue;
      if (!is_mine) row = copy_of(row);
      is_mine = true;
      const UnrolledOp on{wait.op, i.step - wait.steps_ago};
      if (wait.kind == EdgeKind::finish_start)
        join(row, after(p, on), wait.lane, target + 1);
      else
        join(row, before(p, on), wait.lane, target);
    }
    return row;
  }

  // Runs a solo call as a whole, with the result that its operations would have one after the other. Returns false when
  // the call cannot be run so.
  bool run_solo(std::size_t p, LaneId lane, UnrolledOp first, std::size_t number) {
    const SoloShape& shape = solos_[p].shapes[number];
    const BoundProgram& program = programs_[p];
    if (first_unmet(p, first)) return false;
    for (const SoloShape::OnLane& on : shape.lanes) {
      const LaneState& other = state(p, on.lane);
      if (other.step != first.step || other.position != program.ops[first.op + on.first].position) return false;
    }
    for (LaneId other = 0; other < clocks_.lanes; ++other)
      if (head(p, other) < head(p, lane) && !is_stuck_without(p, other, shape)) return false;
    const std::uint32_t start = learn_from_waits(p, lane, first, state(p, lane).after);
    for (const SoloShape::OnLane& on : shape.lanes)
      if (on.lane != lane && clocks_.rows[start * width_ + on.lane] < state(p, on.lane).finished) return false;

    std::optional<SoloClocks>& clocks = inside_[p][number];
    if (!clocks) clocks = clocks_inside(program, first.op, shape);
    const SoloClocks& inside = *clocks;
    if (inside.order.empty()) return false;
    const std::size_t lanes = shape.lanes.size();
    const bool is_newest = (start + 1) * width_ == clocks_.rows.size();
    const std::uint32_t begin = is_newest ? start : copy_of(start);  // row 0 of the call; its other rows follow
    const std::size_t rows = inside.finished.size() / lanes;
    clocks_.rows.resize((begin + rows) * width_);
    const std::uint32_t* const known = &clocks_.rows[begin * width_];
    for (std::size_t row = 1; row < rows; ++row) std::copy_n(known, width_, &clocks_.rows[(begin + row) * width_]);
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::uint32_t finished = state(p, shape.lanes[l].lane).finished;
      std::uint32_t* clock = &clocks_.rows[begin * width_ + shape.lanes[l].lane];
      for (std::size_t row = 1; row < rows; ++row) clock[row * width_] = finished + inside.finished[row * lanes + l];
    }
    std::uint32_t* before = &clocks_.before[p][index(p, first)];
    for (std::uint32_t i = 0; i < shape.count; ++i) before[i] = begin + inside.row[i];
    for (std::size_t l = 0; l < lanes; ++l) state(p, shape.lanes[l].lane).after = begin + inside.last[l];
    for (const SoloClocks::OpRange& stretch : inside.order)
      finish_in_order(p, {first.op + stretch.first, first.step}, stretch.count);
    for (const SoloShape::OnLane& on : shape.lanes) {
      state(p, on.lane).started += on.count;
      pass(p, on.lane, on.count);
    }
    return true;
  }

  // Returns whether the lane, whose next operation cannot move, still cannot when the operations of a call have
  // finished.
  bool is_stuck_without(std::size_t p, LaneId lane, const SoloShape& shape) const {
    const LaneState& me = state(p, lane);
    if (me.started > me.finished) return true;  // the other end of a message, or a member of a collective, is missing
    const BoundWait* wait = first_unmet(p, {me.ops[me.position], me.step});
    return wait && std::none_of(shape.lanes.begin(), shape.lanes.end(),
                                [&](const SoloShape::OnLane& on) { return on.lane == wait->lane; });
  }

  std::uint32_t after(std::size_t p, UnrolledOp i) const {
    const std::uint32_t learnt = after_[p][index(p, i)];
    return learnt == 0 ? before(p, i) : learnt;
  }

  // Returns the program and instance of the other end of a message.
  std::pair<std::uint32_t, UnrolledOp> other_end(RendezvousSlot slot, std::uint32_t step) const {
    const MessagePair& pair = issued_.pairs[slot.group];
    return slot.kind == RendezvousSlot::Kind::send ? std::pair(pair.to, UnrolledOp{pair.receives[slot.index], step})
                                                   : std::pair(pair.from, UnrolledOp{pair.sends[slot.index], step});
  }

  // Finishes this end of a message. Each end finishes by itself, and then knows that the other end had started.
  bool complete_message(std::size_t p, LaneId lane, UnrolledOp i, RendezvousSlot slot) {
    const auto [other, theirs] = other_end(slot, i.step);
    const LaneId on = programs_[other].ops[theirs.op].lane;
    if (state(other, on).started <= clocks_.position(other, theirs)) return false;
    if (!issued_.partners.routes[slot.group].is_direct) {
      // The other end is a rank that is folded away; that rank's progress says nothing about these lanes.
      const std::uint32_t row = copy_of(before(p, i));
      if (state(p, lane).finished > 0) join(row, state(p, lane).after, lane, state(p, lane).finished);
      after_[p][index(p, i)] = row;
      finish(p, lane, i, row);
      return true;
    }
    // The clock of each peer has, for the peer's own lane, the operations that had finished when its group started.
    const std::uint32_t met = copy_of_others(0);
    join_everything(met, p, before(p, i), lane, state(p, lane).finished);
    join_everything(met, other, before(other, theirs), on, clocks_.finished_before(other, theirs, on));
    // Operations of a lane finish in order.
    if (state(p, lane).finished > 0) join_everything(met, p, state(p, lane).after, lane, state(p, lane).finished);
    finish_after_rendezvous(p, lane, i, met);
    return true;
  }

  void finish_after_rendezvous(std::size_t p, LaneId lane, UnrolledOp i, std::uint32_t met) {
    const std::uint32_t row = copy_of(0);
    std::copy_n(&known_[others_[met * programs_.size() + p] * clocks_.lanes], clocks_.lanes,
                &clocks_.rows[row * width_]);
    clocks_.rows[row * width_ + clocks_.lanes] = met;
    after_[p][index(p, i)] = row;
    finish(p, lane, i, row);
  }

  void finish(std::size_t p, LaneId lane, UnrolledOp i, std::uint32_t after) {
    finish_in_order(p, i, 1);
    LaneState& me = state(p, lane);
    me.after = after;
    pass(p, lane, 1);
  }

  void finish_in_order(std::size_t p, UnrolledOp first, std::uint32_t count) {
    std::vector<UnrolledRange>& order = clocks_.order[p];
    if (!order.empty() && order.back().first.step == first.step &&
        order.back().first.op + order.back().count == first.op)
      order.back().count += count;
    else
      order.push_back({first, count});
    if (clocks_.interleaving.empty() || clocks_.interleaving.back().program != p)
      clocks_.interleaving.push_back({static_cast<std::uint32_t>(p), 0});
    clocks_.interleaving.back().count += count;
  }

  // Advances the lane past finished operations, which are all of one step.
  void pass(std::size_t p, LaneId lane, std::uint32_t operations) {
    LaneState& me = state(p, lane);
    me.finished += operations;
    me.position += operations;
    if (me.position == me.ops.size()) {
      me.position = 0;
      ++me.step;
    }
    head(p, lane) =
        me.step == kUnrolledSteps ? kDone : static_cast<std::uint32_t>(index(p, {me.ops[me.position], me.step}));
  }

  // Returns the first member that has not arrived, or the number of members when all have arrived. `which` is the index
  // in the group's sequence, and the step. Members before `from` have arrived.
  std::size_t absent_member(const CollectiveGroup& group, UnrolledOp which, std::size_t from = 0) const {
    for (std::size_t m = from; m < group.members.size(); ++m) {
      const std::uint32_t p = group.members[m];
      const UnrolledOp i{group.sequence[m][which.op], which.step};
      if (state(p, programs_[p].ops[i.op].lane).started <= clocks_.position(p, i)) return m;
    }
    return group.members.size();
  }

  void complete(const CollectiveGroup& group, UnrolledOp which) {
    const std::uint32_t met = copy_of_others(0);
    std::uint32_t joined = 0;  // row of `others_`: what all members have known since they met last
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const std::uint32_t p = group.members[m];
      const UnrolledOp i{group.sequence[m][which.op], which.step};
      joined = join_everything(met, p, before(p, i), programs_[p].ops[i.op].lane, clocks_.position(p, i), joined);
    }
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const std::uint32_t p = group.members[m];
      const UnrolledOp i{group.sequence[m][which.op], which.step};
      finish_after_rendezvous(p, programs_[p].ops[i.op].lane, i, met);
    }
  }

  std::uint32_t copy_of(std::uint32_t row) { return append_copy(clocks_.rows, row, width_); }
  std::uint32_t copy_of_others(std::uint32_t row) { return append_copy(others_, row, programs_.size()); }
  static std::uint32_t append_copy(std::vector<std::uint32_t>& table, std::size_t row, std::size_t width) {
    const std::size_t to = table.size();
    table.resize(to + width);
    std::copy_n(table.data() + row * width, width, table.data() + to);
    return static_cast<std::uint32_t>(to / width);
  }

  // Joins a row into another. `from` is a row of the same program, of an operation of a lane that has finished
  // `finished` operations.
  void join(std::uint32_t into, std::uint32_t from, LaneId lane, std::uint32_t finished) {
    std::uint32_t* to = &clocks_.rows[into * width_];
    const std::uint32_t* row = &clocks_.rows[from * width_];
    for (std::size_t l = 0; l < clocks_.lanes; ++l) to[l] = std::max(to[l], row[l]);
    to[lane] = std::max(to[lane], finished);
    to[clocks_.lanes] = joined_others(to[clocks_.lanes], row[clocks_.lanes]);
  }

  // Returns a row of `others_` that knows all that both rows know.
  std::uint32_t joined_others(std::uint32_t a, std::uint32_t b) {
    if (a == b || b == 0) return a;
    const std::size_t programs = programs_.size();
    bool is_a = true, is_b = true;
    known_of_.resize(programs);
    for (std::size_t q = 0; q < programs; ++q) {
      const std::uint32_t of_a = others_[a * programs + q], of_b = others_[b * programs + q];
      known_of_[q] = joined_known(of_a, of_b);
      is_a = is_a && known_of_[q] == of_a;
      is_b = is_b && known_of_[q] == of_b;
    }
    if (is_a) return a;
    if (is_b) return b;
    others_.insert(others_.end(), known_of_.begin(), known_of_.end());
    return static_cast<std::uint32_t>(others_.size() / programs - 1);
  }

  // Returns a row of `known_` that knows all that both rows know.
  std::uint32_t joined_known(std::uint32_t a, std::uint32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    const std::uint32_t *of_a = &known_[a * clocks_.lanes], *of_b = &known_[b * clocks_.lanes];
    bool is_a = true, is_b = true;
    for (std::size_t l = 0; l < clocks_.lanes; ++l) {
      is_a = is_a && of_a[l] >= of_b[l];
      is_b = is_b && of_b[l] >= of_a[l];
    }
    if (is_a) return a;
    if (is_b) return b;
    const std::uint32_t both = append_copy(known_, a, clocks_.lanes);
    for (std::size_t l = 0; l < clocks_.lanes; ++l) {
      std::uint32_t& to = known_[both * clocks_.lanes + l];
      to = std::max(to, known_[b * clocks_.lanes + l]);
    }
    return both;
  }

  // Adds to a row of `others_` all knowledge of a row of program p, which belongs to an operation of a lane that
  // has finished `finished` operations. The knowledge of the row `joined` of `others_` is in it already. Returns the
  // row that was added.
  std::uint32_t join_everything(std::uint32_t into, std::size_t p, std::uint32_t from, LaneId lane,
                                std::uint32_t finished, std::uint32_t joined = 0) {
    const std::size_t programs = programs_.size();
    const std::uint32_t row = clocks_.rows[from * width_ + clocks_.lanes];
    if (row != joined)
      for (std::size_t q = 0; q < programs; ++q)
        others_[into * programs + q] = joined_known(others_[into * programs + q], others_[row * programs + q]);
    const std::uint32_t own = append_copy(known_, others_[into * programs + p], clocks_.lanes);
    for (std::size_t l = 0; l < clocks_.lanes; ++l) {
      std::uint32_t& to = known_[own * clocks_.lanes + l];
      to = std::max(to, clocks_.rows[from * width_ + l]);
    }
    std::uint32_t& to = known_[own * clocks_.lanes + lane];
    to = std::max(to, finished);
    others_[into * programs + p] = own;
    return row;
  }

  // Members of a group that are known to have arrived at the group's current operation, counted from the first on.
  struct Arrived {
    UnrolledOp at;
    std::size_t members = 0;
  };

  struct Blocked {
    std::size_t on_program = 0;
    LaneId on_lane = 0;
    std::string text;
  };

  std::string lane_name(std::size_t p, LaneId lane) const {
    const std::string name = "lane " + schedule_.lanes[lane].name;
    return programs_.size() > 1 ? "rank " + std::to_string(programs_[p].rank) + " " + name : name;
  }

  // Returns why the head of a lane that is not done cannot go on.
  Blocked blocked(std::size_t p, LaneId lane) const {
    const LaneState& me = state(p, lane);
    const UnrolledOp i = at(p, lane, me.finished);
    const std::string head = label(schedule_, programs_[p].ops[i.op]) + " (" + lane_name(p, lane) + ")";
    if (me.started == me.finished) {
      // The unmet wait belongs to the operation itself, or to one that is joined to it.
      std::uint32_t n = me.finished;
      while (!first_unmet(p, at(p, lane, n))) ++n;
      const BoundWait& wait = *first_unmet(p, at(p, lane, n));
      return {p, wait.lane,
              head + " waits for the " + (wait.kind == EdgeKind::finish_start ? "finish" : "start") + " of " +
                  label(schedule_, programs_[p].ops[wait.op]) + (wait.steps_ago > 0 ? " of the step before" : "") +
                  after(p, wait.lane, {wait.op, i.step - wait.steps_ago})};
    }
    const RendezvousSlot slot = issued_.slots[p][i.op];
    std::uint32_t other = 0;
    UnrolledOp theirs;
    if (slot.kind == RendezvousSlot::Kind::collective) {
      const CollectiveGroup& group = issued_.groups[slot.group];
      const std::size_t m = absent_member(group, {slot.index, i.step});
      other = group.members[m];
      theirs = {group.sequence[m][slot.index], i.step};
    } else {
      std::tie(other, theirs) = other_end(slot, i.step);
    }
    const LaneId on = programs_[other].ops[theirs.op].lane;
    return {other, on, head + " waits for rank " + std::to_string(programs_[other].rank) + after(other, on, theirs)};
  }

  std::string after(std::size_t p, LaneId lane, UnrolledOp target) const {
    const UnrolledOp head = at(p, lane, state(p, lane).finished);
    if (head.op == target.op && head.step == target.step) return "";
    return ", which comes after " + label(schedule_, programs_[p].ops[head.op]) + " in " + lane_name(p, lane);
  }

  std::string describe_blocked() const {
    std::size_t stuck = 0;
    while (stuck < lanes_.size() && heads_[stuck] == kDone) ++stuck;
    if (stuck == lanes_.size()) return "";
    // Every blocked lane waits for another blocked lane, so a walk along these waits returns to a lane that it has
    // seen.
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
    constexpr std::size_t kOthers = 4;  // enough to see which other lanes hang; the cycle is the cause
    std::size_t shown = 0;
    for (std::size_t l = 0; l < lanes_.size() && shown < kOthers; ++l) {
      if (heads_[l] == kDone ||
          std::find(path.begin() + static_cast<std::ptrdiff_t>(begin), path.end(), l) != path.end())
        continue;
      message += (shown++ == 0 ? ". After it: " : "; ");
      message += blocked(l / clocks_.lanes, static_cast<LaneId>(l % clocks_.lanes)).text;
    }
    return message;
  }

  const Schedule& schedule_;
  const IssueOrder& issued_;
  HappensBefore& clocks_;
  std::span<const BoundProgram> programs_;
  const std::size_t width_;                                     // of a row
  std::vector<LaneState> lanes_;                                // [program · lanes + lane]
  std::vector<std::uint32_t> heads_;                            // [program · lanes + lane]
  std::vector<SoloCalls> solos_;                                // [program]
  std::vector<Arrived> arrived_;                                // [group]
  std::vector<std::vector<std::optional<SoloClocks>>> inside_;  // [program][shape], made at the first use
  // [program][step · ops + op] → row of what is known when the operation has finished; 0: what was known when it
  // started.
  std::vector<std::vector<std::uint32_t>> after_;
  // Knowledge about all programs: [row · programs + program] → row of `known_`; row 0: nothing.
  std::vector<std::uint32_t> others_;
  std::vector<std::uint32_t> known_;     // [row · lanes + lane] finished operations of a program; row 0: none
  std::vector<std::uint32_t> known_of_;  // [program] a row of `others_` in the making
};

}  // namespace

std::uint32_t HappensBefore::finished_before(std::size_t program, UnrolledOp at, LaneId lane) const {
  const BoundProgram& bound = programs[program];
  const BoundOp& op = bound.ops[at.op];
  if (op.lane != lane) return known(program, at)[lane];
  // Joined operations start together.
  std::uint32_t first = op.position;
  while (first > 0 && bound.ops[bound.lanes[lane][first]].joined) --first;
  return position(program, at) - (op.position - first);
}

HappensBefore order_steps(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder& issued) {
  HappensBefore clocks;
  clocks.programs = programs;
  clocks.lanes = schedule.lanes.size();
  AbstractRun(schedule, issued, clocks).run();
  return clocks;
}

HappensBefore require_order(const Schedule& schedule, std::span<const BoundProgram> programs,
                            const IssueOrder& issued) {
  if (const auto mismatch = check_issue_order(schedule, programs, issued, 1); !mismatch.empty())
    throw input_error(mismatch.front().message);
  HappensBefore clocks = order_steps(schedule, programs, issued);
  if (!clocks.deadlock.empty()) throw input_error(clocks.deadlock);
  return clocks;
}

}  // namespace stretto
