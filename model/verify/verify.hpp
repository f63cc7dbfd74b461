#pragma once
#include <string>
#include <vector>

#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The verifier proves, over two consecutive steps of every representative rank (a step is cyclic):
//  - every byte read has been written before it, in this step or, for persistent storages, before step 0;
//  - any two accesses to the same byte of which one writes are ordered by lanes, edges and collectives;
//  - all members of a communicator issue its operations in the same order, with equal kinds and sizes, and the orders
//    of two communicators that share members agree unless both can be resident at once;
//  - the step can run to its end: no cycle across lanes and ranks;
//  - each read gets the intended value: of its own micro-batch, of a complete sum, of the current parameters.
// With a plan, the same on planned bytes: two storages that share an address are one buffer.
struct Violation {
  enum class Kind { malformed, uninitialised_read, race, order_mismatch, deadlock, wrong_value };
  Kind kind = Kind::malformed;
  std::string message;  // names the two operations and the edge that is missing
};

// Empty when the schedule is correct. At most `limit` violations.
std::vector<Violation> verify(const Schedule& schedule, const MemoryPlan* plan = nullptr, std::size_t limit = 10);

// Throws Error(input) with the first violation.
void require_verified(const Schedule& schedule, const MemoryPlan* plan = nullptr);

// A schedule that may be simulated and run: the results of plan_memory and require_verified, with their common work
// done once. Throws as they do.
struct VerifiedSchedule {
  std::vector<BoundProgram> programs;  // of the representative ranks, in order
  MemoryPlan plan;
};
VerifiedSchedule plan_and_verify(const Schedule& schedule);

}  // namespace stretto
