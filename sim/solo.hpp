#pragma once
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "sim/flat_program.hpp"

namespace stretto::sim {

// Calls of which nobody else takes part: all their operations are computation and collectives whose other members are
// folded away. When such a call has its device to itself, how it runs depends on its block alone, and it takes the same
// time whenever it runs. The core records it once and plays the recording from then on: one event instead of one for
// each operation. When somebody else turns up on the device before the end, the core goes back to the beginning of the
// call and simulates its operations after all.

// How a call ran, in time since its first operation was ready.
struct SoloRecording {
  bool is_complete = false;
  std::vector<TimelineRow> rows;              // [operation of the call]
  std::vector<Picoseconds> slept_until = {};  // [SoloShape::lanes]: when the first wait of the lane was over
};

// Sets FlatOp::shape of the first operation of calls that can be played, and FlatProgram::shapes. Such a call has at
// least two operations; only the first waits for what is not of the call, and so does nobody else's before the last one
// has ended: every other lane waits for the call when it begins, and for its last operation when it is over.
// `is_local`: [communicator], only one of its members is simulated.
void find_solo_calls(const Schedule& schedule, const BoundProgram& program, const std::vector<bool>& is_local,
                     FlatProgram& flat);

}  // namespace stretto::sim
