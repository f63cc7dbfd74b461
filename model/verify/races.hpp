#pragma once
#include <cstddef>
#include <set>
#include <tuple>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/footprint.hpp"
#include "model/schedule/happens_before.hpp"
#include "model/schedule/plan.hpp"
#include "model/verify/meaning.hpp"
#include "model/verify/verify.hpp"

namespace stretto {

// Internal to the verifier. Collects findings. Findings of one kind between two operations on one storage count once,
// however many layers, micro-batches and ranks show them.
struct RaceReport {
  using Key = std::tuple<Violation::Kind, OpId, OpId, StorageId>;
  std::vector<Violation> violations;
  std::set<Key> seen;
  std::size_t limit = 10;
};

// Visits the accesses of one program in the order of `clocks`. Reports reads of bytes that were not written in the same
// step (unless their storage is persistent or an input), conflicting accesses that are not ordered, and reads of a
// wrong value. `rules` are the schedule's. With a plan, bytes are those of the arena, and bytes that another storage
// wrote do not count as written. Throws Error(input) when a view leaves its tensor instance. `footprints` are the
// program's; `clocks` must have run to its end.
void find_races(const Schedule& schedule, const ValueRules& rules, const HappensBefore& clocks, std::size_t program,
                Footprints& footprints, const RolePlan* plan, RaceReport& report);

}  // namespace stretto
