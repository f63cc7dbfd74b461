#pragma once
#include "exec/host/memory.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

constexpr std::int64_t kThreadElements = 1 << 16;  // that are worth a thread

// Elements of the model's state in a rank's memory, as numbers: f64 holds those of every floating type.

// A run's elements, from and to `values`.
void read_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, double* values);
void write_run(const Schedule& schedule, host::RankMemory& memory, const StateRun& run, const double* values);

// Parameters are exact where the optimizer updates them.
StatePart exact_form(const Schedule& schedule, const StatePiece& piece, StatePart part);

}  // namespace stretto::exec
