#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::test {

// A schedule, one rank's program and a timeline, written operation by operation. For tests of reports. Lanes: 0
// "compute", 1 "dp" (communicator 0), 2 "tp" (communicator 1). Times are in picoseconds.
struct HandMade {
  struct Wait {
    std::uint32_t op = 0;
    int steps_ago = 0;
    EdgeKind kind = EdgeKind::finish_start;
  };

  explicit HandMade(std::int64_t rank = 0) {
    schedule.name = "hand-made";
    schedule.lanes = {
        {"compute", LaneKind::compute, 0}, {"dp", LaneKind::communication, 0}, {"tp", LaneKind::communication, 0}};
    schedule.communicators = {{"dp", {Coord::dp}, CommEngine::nic, 1, 2}, {"tp", {Coord::tp}, CommEngine::nic, 1, 2}};
    schedule.programs = {{"rank", {}}};
    program.rank = rank;
    program.lanes.resize(3);
  }

  // Appends an operation and its row; returns its index.
  std::uint32_t add(LaneId lane, Picoseconds ready, Picoseconds start, Picoseconds transfer, Picoseconds end,
                    std::initializer_list<Wait> waits = {}) {
    const auto index = static_cast<std::uint32_t>(program.ops.size());
    Operation operation;
    operation.name = schedule.lanes[lane].name + "." + std::to_string(index);
    operation.lane = lane;
    if (schedule.lanes[lane].kind == LaneKind::compute)
      operation.work = Elementwise{};
    else
      operation.work = Collective{CollectiveKind::all_reduce, lane - 1u, 16};
    schedule.operations.push_back(operation);
    program.works.push_back(operation.work);

    BoundOp op;
    op.op = index;
    op.lane = lane;
    op.position = static_cast<std::uint32_t>(program.lanes[lane].size());
    op.wait_begin = static_cast<std::uint32_t>(program.waits.size());
    for (const Wait& wait : waits) {
      const BoundOp& on = program.ops[wait.op];
      program.waits.push_back({wait.kind, on.lane, static_cast<std::uint8_t>(wait.steps_ago), on.position, wait.op});
    }
    op.wait_end = static_cast<std::uint32_t>(program.waits.size());
    program.lanes[lane].push_back(index);
    program.ops.push_back(op);
    timeline.rows.push_back({static_cast<std::int32_t>(program.rank), index, ready, start, transfer, end});
    return index;
  }
  std::uint32_t compute(Picoseconds ready, Picoseconds start, Picoseconds end, std::initializer_list<Wait> waits = {}) {
    return add(0, ready, start, start, end, waits);
  }
  // Makes an operation wait for one that was added after it: a wait across the step boundary. It must be the last
  // operation with waits.
  void wait_for_previous_step(std::uint32_t op, std::uint32_t on) {
    BoundOp& waiting = program.ops[op];
    waiting.wait_begin = static_cast<std::uint32_t>(program.waits.size());
    program.waits.push_back({EdgeKind::finish_start, program.ops[on].lane, 1, program.ops[on].position, on});
    waiting.wait_end = static_cast<std::uint32_t>(program.waits.size());
  }

  Schedule schedule;
  BoundProgram program;
  Timeline timeline;
};

// Returns the step of hand-made programs.
inline BoundStep step_of(const Schedule& schedule, std::vector<BoundProgram> programs) {
  const Folding folding(schedule.mesh);
  IssueOrder issued = find_issue_order(schedule, programs, folding);
  return {folding, std::move(programs), std::move(issued)};
}

}  // namespace stretto::test
