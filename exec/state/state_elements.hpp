#pragma once
#include <vector>

#include "exec/host/memory.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

constexpr std::int64_t kThreadElements = 1 << 16;  // elements that are worth a thread

// Elements of the model's state in a rank's memory, as f64, which holds the values of every floating type.

// Read a run's elements into `values`, and write them back. Of halves (StateRun), those of the lower one are read into
// values that are those of the upper one, and become exact.
void read_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, double* values);
void write_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, const double* values);

// Returns the part in which parameters are exact, the one that the optimizer updates; or the parts, in the order in
// which they are read, where these have halves of them.
std::vector<StatePart> exact_forms(const Schedule& schedule, const StatePiece& piece, StatePart part);

}  // namespace stretto::exec
