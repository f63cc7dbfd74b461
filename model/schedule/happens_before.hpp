#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/issue_order.hpp"

namespace stretto {

// Internal to the verifier and the memory plan: the happens-before relation of consecutive steps of all
// representatives, as vector clocks (Mattern 1989, Fidge 1988). A clock has one component per (program, lane): how many
// operations of that lane are known to have finished. Lanes are in order, so that number says which.

// The steps that are unrolled. A step is cyclic, so two show every conflict between one step and the next.
constexpr std::uint32_t kUnrolledSteps = 2;

// One operation of the unrolled execution.
struct UnrolledOp {
  std::uint32_t op = 0;  // index into BoundProgram::ops
  std::uint32_t step = 0;
};

// `count` operations of a program from `first` on, which finish one after the other.
struct UnrolledRange {
  UnrolledOp first;
  std::uint32_t count = 0;
};
// Operations of one program that finish while none of another does.
struct ProgramRange {
  std::uint32_t program = 0;
  std::uint32_t count = 0;
};

struct HappensBefore {
  std::string deadlock;  // "" when the steps run to their end; then everything below is complete
  std::vector<std::vector<UnrolledRange>> order;  // [program] one legal order of finishing
  std::vector<ProgramRange> interleaving;         // whose operations finish, in that order

  // Position of an instance in its lane, counted over all steps.
  std::uint32_t position(std::size_t program, UnrolledOp at) const {
    const BoundOp& op = programs[program].ops[at.op];
    return at.step * static_cast<std::uint32_t>(programs[program].lanes[op.lane].size()) + op.position;
  }
  // Operations of `lane` of the same program that have finished before `at` starts.
  std::uint32_t finished_before(std::size_t program, UnrolledOp at, LaneId lane) const;
  // The same for every lane, [lane]; the component of the operation's own lane is a lower bound only.
  const std::uint32_t* known(std::size_t program, UnrolledOp at) const {
    return &rows[before[program][at.step * programs[program].ops.size() + at.op] * (lanes + 1)];
  }
  bool ordered(std::size_t program, UnrolledOp first, UnrolledOp second) const {
    return finished_before(program, second, programs[program].ops[first.op].lane) > position(program, first);
  }

  // Clocks are shared: an operation that learns nothing new has the clock of its predecessor in the lane, and its own
  // lane's component is not stored but is its position. What is known of the own program's lanes changes all the time;
  // what is known of others changes with messages and with collectives of several representatives only. So a clock is a
  // row of [lanes] components and, behind them, which row of `others` it has: memory grows with the waits across lanes.
  std::span<const BoundProgram> programs;
  std::size_t lanes = 0;
  std::vector<std::vector<std::uint32_t>> before;  // [program][step · ops + op] → row
  std::vector<std::uint32_t> rows;                 // [row · (lanes + 1) + lane]
  std::vector<std::uint32_t> others;  // [row · programs · lanes + program · lanes + lane]; row 0: nothing
};

// Executes the steps abstractly: lanes in order, waits as stated (those that reach before the first step are met),
// collectives as rendezvous: a member's finish implies that all members have arrived; so with the two ends of a
// message. A communication has started (EdgeKind::start_start) when this rank has arrived. Operations that are joined
// start at once. `programs` must outlive the result.
HappensBefore order_steps(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder& issued);
// The same; throws Error(input) when members disagree about the order of collectives and messages, or on a deadlock.
HappensBefore require_order(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder& issued);

}  // namespace stretto
