#pragma once
#include <span>

#include "base/timeline.hpp"
#include "exec/launch/process_group.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::launch {

// Every process brings the timeline of its own rank, whose rows say rank 0; rank 0 gets that of all, the others their
// own. Clocks of different processes cannot be compared, so each rank's times count from its own beginning of the step,
// which steps that end in a collective begin together; the step is as long as the longest. When a communication's
// last member arrived a rank does not know: `transfer` stays what it was for itself. `programs` are those of all ranks.
// Throws Error(runtime) when a rank sends rows of operations that its program has not.
Timeline gather_timeline(ProcessGroup& processes, Timeline mine, std::span<const BoundProgram> programs);

}  // namespace stretto::launch
