#pragma once
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"

namespace stretto {

// Why a step took as long as it did: from the operation that ended last back to the beginning of the step, each time
// to what the operation began behind, of all that it had to wait for: the operation before it on its lane, one that it
// waits for, or, for communication, the member that came last and what that one waited for (the critical path of Yang
// and Miller, ICDCS 1988). With compute + communication + between = length the last says what nobody computed for:
// launching, waiting for cores, the beginning of the step.
struct CriticalPath {
  std::vector<TimelineRow> rows;  // in the order they ran; communication by the member that came last
  Picoseconds length = 0;         // from step_begin to the end of the last operation
  Picoseconds compute = 0, communication = 0, between = 0;
};

// `step`: with the programs that the rows' `op` index into, of all ranks or of all representatives; rows in order of
// (rank, op), of which some may be missing. What an operation waits for of the step before counts as the beginning of
// the step.
CriticalPath critical_path(const BoundStep& step, const Timeline& timeline);

}  // namespace stretto
