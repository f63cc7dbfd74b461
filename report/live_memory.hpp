#pragma once
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// The bytes that a rank's buffers hold over a step. A gradient, an activation or a workspace is live from the beginning
// of an operation that overwrites all of it to the end of the last operation that accesses it before the next
// overwrite; all other buffers are always live. The plan's peak may be above the largest value: buffers that share
// bytes never move.
struct LiveMemory {
  Picoseconds at = 0;
  std::int64_t bytes = 0;  // from this time on
};

// Returns the values in order of time, the first one at the rank's first operation. `rows` are those of one step of
// this rank, in any order; the program must belong to the schedule.
std::vector<LiveMemory> live_memory(const Schedule& schedule, const BoundProgram& program,
                                    const std::vector<const TimelineRow*>& rows);

}  // namespace stretto
