#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/issue_order.hpp"

namespace stretto {

// Internal to the verifier and the memory plan: the happens-before relation of consecutive steps of all
// representatives, as vector clocks (Mattern 1989, Fidge 1988). A clock has one component per (program, lane): the
// number of operations of that lane that are known to have finished. Lanes are in order, so that number says which
// operations these are.

// The number of unrolled steps. A step is cyclic, so two steps show every conflict between one step and the next.
constexpr std::uint32_t kUnrolledSteps = 2;

// One operation of one of the unrolled steps.
struct UnrolledOp {
  std::uint32_t op = 0;  // index into BoundProgram::ops
  std::uint32_t step = 0;
};

// `count` consecutive operations of a program from `first` on, which finish one after the other.
struct UnrolledRange {
  UnrolledOp first;
  std::uint32_t count = 0;
};
// The next `count` operations of a program's order; no other program's operation finishes between them.
struct ProgramRange {
  std::uint32_t program = 0;
  std::uint32_t count = 0;
};

struct HappensBefore {
  std::string deadlock;  // "" when the steps run to their end; only then are the other fields complete
  std::vector<std::vector<UnrolledRange>> order;  // [program] one legal order of finishing
  std::vector<ProgramRange> interleaving;         // all programs' orders merged into one

  // Returns the position of an instance in its lane, counted over all steps.
  std::uint32_t position(std::size_t program, UnrolledOp at) const {
    const BoundOp& op = programs[program].ops[at.op];
    return at.step * static_cast<std::uint32_t>(programs[program].lanes[op.lane].size()) + op.position;
  }
  // Returns how many operations of `lane` of the same program have finished before `at` starts.
  std::uint32_t finished_before(std::size_t program, UnrolledOp at, LaneId lane) const;
  // Returns the numbers of finished operations for every lane, [lane]; the component of the operation's own lane is
  // only a lower bound.
  const std::uint32_t* known(std::size_t program, UnrolledOp at) const {
    return &rows[before[program][at.step * programs[program].ops.size() + at.op] * (lanes + 1)];
  }
  bool ordered(std::size_t program, UnrolledOp first, UnrolledOp second) const {
    return finished_before(program, second, programs[program].ops[first.op].lane) > position(program, first);
  }

  // Clocks are shared to save memory: an operation that learns nothing new has the clock of its predecessor in the
  // lane, and the component of its own lane is not stored because it equals the operation's position. Components of the
  // own program change all the time; components of other programs change only with messages and with collectives of
  // several representatives. So a clock is a row of [lanes] own components, followed by the index of what is known of
  // all programs, which only the making of the relation needs.
  std::span<const BoundProgram> programs;
  std::size_t lanes = 0;
  std::vector<std::vector<std::uint32_t>> before;  // [program][step · ops + op] → row
  std::vector<std::uint32_t> rows;                 // [row · (lanes + 1) + lane]
};

// Executes the steps abstractly. Lanes run in order; waits hold as stated, and waits that reach before the first step
// are satisfied. Collectives are rendezvous: a member finishes after all members have arrived, and so does each end of
// a message. A communication has started (EdgeKind::start_start) when its own rank has arrived. Joined operations start
// together. `programs` must outlive the result.
HappensBefore order_steps(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder& issued);
// Does what order_steps does, and throws Error(input) when members disagree about the order of collectives and
// messages, or on a deadlock.
HappensBefore require_order(const Schedule& schedule, std::span<const BoundProgram> programs, const IssueOrder& issued);

}  // namespace stretto
