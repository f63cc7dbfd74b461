#pragma once
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// What a rank's buffers hold over a step. A gradient, an activation or a workspace is in use from the beginning of an
// operation that overwrites all of it to the end of the last one that has it before it is overwritten again; everything
// else always. The plan's peak may be above the largest: buffers that share bytes never move.
struct LiveMemory {
  Picoseconds at = 0;
  std::int64_t bytes = 0;  // from then on
};

// By time, the first at the rank's first operation. `rows` are those of one step of this rank, in any order; the
// program must be of the schedule.
std::vector<LiveMemory> live_memory(const Schedule& schedule, const BoundProgram& program,
                                    const std::vector<const TimelineRow*>& rows);

}  // namespace stretto
