#pragma once
#include <span>
#include <utility>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/folding.hpp"
#include "model/schedule/issue_order.hpp"

namespace stretto {

// A step as the ranks that stand for all others do it: their programs, and who meets whom in them. Made once from a
// schedule; verifier, memory plan, simulator, executors and reports read it. A value type, which refers to the schedule
// by index only.
struct BoundStep {
  Folding folding;                     // at which program each rank is found
  std::vector<BoundProgram> programs;  // [Folding::representatives()]
  IssueOrder issued;                   // with the partners
};

// Throws Error(input) as bind() and find_issue_order() do.
inline BoundStep bind_step(const Schedule& schedule, Folding folding, std::span<const BoundProgram> of_roles = {}) {
  std::vector<BoundProgram> programs = bind_representatives(schedule, folding, of_roles);
  IssueOrder issued = find_issue_order(schedule, programs, folding);
  return {std::move(folding), std::move(programs), std::move(issued)};
}
// With as few representatives as the schedule allows.
inline BoundStep bind_step(const Schedule& schedule) { return bind_step(schedule, fold_ranks(schedule)); }
// A step that has been bound already, with the program of every rank.
inline BoundStep unfolded(const Schedule& schedule, const BoundStep& step) {
  return bind_step(schedule, Folding(schedule.mesh), step.programs);
}
// The program of one rank of it, which may be folded.
inline BoundProgram program_of(const Schedule& schedule, const BoundStep& step, std::int64_t rank) {
  return bind_like(schedule, step.programs[step.folding.index_of(rank)], rank);
}

}  // namespace stretto
