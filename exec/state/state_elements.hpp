#pragma once
#include "exec/host/memory.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

constexpr std::int64_t kThreadElements = 1 << 16;  // elements that are worth a thread

// Elements of the model's state in a rank's memory, as f64, which holds the values of every floating type.

// Read a run's elements into `values`, and write them back.
void read_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, double* values);
void write_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, const double* values);

// Returns the part in which parameters are exact: the one that the optimizer updates.
StatePart exact_form(const Schedule& schedule, const StatePiece& piece, StatePart part);

}  // namespace stretto::exec
