#include "sim/lanes.hpp"

namespace stretto::sim {

Lanes::Lanes(const SimInputs& inputs)
    : inputs_(inputs),
      per_rank_(static_cast<std::uint32_t>(inputs.schedule.lanes.size())),
      wake_(inputs.costs.wake),
      op_overhead_(inputs.costs.op_overhead),
      has_host_(!inputs.costs.host.issue.empty()),
      hosts_(inputs.programs.size()),
      cursors_(inputs.programs.size() * inputs.schedule.lanes.size()) {
  for (std::uint32_t number = 0; number < size(); ++number) {
    const LaneId id = number % per_rank_;
    Cursor& lane = cursors_[number];
    lane.program = inputs.flat[rank_of(number)].get();
    lane.ops = lane.program->ops.data() + lane.program->lane_begin[id];
    lane.length = lane.program->length(id);
    if (lane.length == 0) continue;
    lane.stage = LaneStage::blocked;
    ++hosts_[rank_of(number)].lanes;
  }
}

std::uint32_t Lanes::take_woken(std::uint32_t on, EdgeKind kind) {
  const std::uint64_t count = kind == EdgeKind::finish_start ? cursors_[on].finished : cursors_[on].started;
  std::uint32_t woken = kNone;
  for (std::uint32_t* link = &cursors_[on].first_blocked; *link != kNone;) {
    const std::uint32_t number = *link;
    Cursor& lane = cursors_[number];
    if (lane.blocked_kind == kind && lane.blocked_until <= count) {
      *link = std::exchange(lane.next_blocked, woken);
      woken = number;
    } else {
      link = &lane.next_blocked;
    }
  }
  return woken;
}

std::int64_t Lanes::finished() const {
  std::int64_t total = 0;
  for (const Cursor& lane : cursors_) total += static_cast<std::int64_t>(lane.finished);
  return total;
}

std::int64_t Lanes::per_step() const {
  std::int64_t total = 0;
  for (const Cursor& lane : cursors_) total += lane.length;
  return total;
}

std::string Lanes::describe(std::uint32_t number) const {
  const Cursor& lane = cursors_[number];
  const BoundProgram& program = inputs_.programs[rank_of(number)];
  return "rank " + std::to_string(program.rank) + " lane " + inputs_.schedule.lanes[number % per_rank_].name + " (" +
         label(inputs_.schedule, program.ops[lane.current().op]) + ", step " + std::to_string(lane.step) + ")";
}

std::string Lanes::describe_wait(std::uint32_t number) const {
  const Cursor &lane = cursors_[number], &other = cursors_[lane.blocked_on];
  const std::uint64_t index = (lane.blocked_until - 1) % other.length, step = (lane.blocked_until - 1) / other.length;
  const BoundProgram& program = inputs_.programs[rank_of(number)];
  return label(inputs_.schedule, program.ops[other.ops[index].op]) + " of step " + std::to_string(step) + " on lane " +
         inputs_.schedule.lanes[lane.blocked_on % per_rank_].name +
         (lane.blocked_kind == EdgeKind::finish_start ? " to finish" : " to start");
}

}  // namespace stretto::sim
