#pragma once
#include <string>
#include <vector>

#include "model/schedule/bound_step.hpp"
#include "model/schedule/plan.hpp"
#include "model/schedule/schedule.hpp"
#include "model/schedule/violation.hpp"

namespace stretto {

// The verifier proves, over two consecutive steps of every representative rank (a step is cyclic):
//  - every byte read has been written before, in this step or, for persistent storages, before step 0;
//  - any two accesses to one byte, at least one of them a write, are ordered by lanes, edges and collectives;
//  - all members of a communicator issue its operations in one order, with equal kinds and sizes, and the orders
//    of two communicators that share members agree unless both can be resident at once;
//  - the step can run to its end: no cycle across lanes and ranks;
//  - each read gets the intended value: of its own micro-batch, of a complete sum, of the current parameters. With a
//    plan, this holds for planned bytes: two storages that share an address are one buffer.
//
// Returns at most `limit` violations, none when the schedule is correct.
std::vector<Violation> verify(const Schedule& schedule, const MemoryPlan* plan = nullptr, std::size_t limit = 10);

// Throws Error(input) with the first violation of a schedule.
void require_verified(const Schedule& schedule, const MemoryPlan* plan = nullptr);

// A schedule that may be simulated and run, with everything that verification derived: the programs of the
// representatives, the folding, partners and issue order (BoundStep), and the memory plan. No other code derives these
// again. A value type, never changed.
struct VerifiedSchedule : BoundStep {
  Schedule schedule;
  MemoryPlan plan;
};
// Plans the memory of the schedule and verifies the schedule on the planned bytes. Throws Error(input) as plan_memory()
// and require_verified() do.
VerifiedSchedule plan_and_verify(Schedule schedule);

}  // namespace stretto
