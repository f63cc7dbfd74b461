#pragma once
#include <span>

#include "base/timeline.hpp"
#include "exec/launch/process_group.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::launch {

// Gathers timelines. Every process passes the timeline of its own rank, whose rows say rank 0; rank 0 gets the timeline
// of all ranks, the others their own. Clocks of different processes cannot be compared, so each rank's times count from
// its own beginning of the step, and ranks begin a step together when the previous one ends in a collective; the step
// is as long as the longest. A rank does not know when a communication's last member arrived: `transfer` keeps its own
// value. `programs` are those of all ranks. Throws Error(runtime) when a rank sends rows of operations that its program
// does not have.
Timeline gather_timeline(ProcessGroup& processes, Timeline mine, std::span<const BoundProgram> programs);

}  // namespace stretto::launch
