#pragma once
#include <span>
#include <utility>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/folding.hpp"
#include "model/schedule/issue_order.hpp"

namespace stretto {

// A step as the programs of the representatives, with the ranks that each represents and the partners of all
// communications. Made once from a schedule; verifier, memory plan, simulator, executors and reports read it. A value
// type, which refers to the schedule by index only.
struct BoundStep {
  Folding folding;                     // the program that stands for each rank
  std::vector<BoundProgram> programs;  // [index in Folding::representatives()]
  IssueOrder issued;                   // includes the partners
};

// Binds the representatives of a folding and matches their communications. Throws Error(input) as bind() and
// find_issue_order() do.
inline BoundStep bind_step(const Schedule& schedule, Folding folding, std::span<const BoundProgram> of_roles = {}) {
  std::vector<BoundProgram> programs = bind_representatives(schedule, folding, of_roles);
  IssueOrder issued = find_issue_order(schedule, programs, folding);
  return {std::move(folding), std::move(programs), std::move(issued)};
}
// Binds with as few representatives as the schedule allows.
inline BoundStep bind_step(const Schedule& schedule) { return bind_step(schedule, fold_ranks(schedule)); }
// Returns a step with the program of every rank, made from a bound step.
inline BoundStep unfolded(const Schedule& schedule, const BoundStep& step) {
  return bind_step(schedule, Folding(schedule.mesh), step.programs);
}
// Returns the program of any rank of the step, also of one that is folded away.
inline BoundProgram program_of(const Schedule& schedule, const BoundStep& step, std::int64_t rank) {
  return bind_like(schedule, step.programs[step.folding.index_of(rank)], rank);
}

}  // namespace stretto
