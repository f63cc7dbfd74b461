#pragma once
#include <cstdint>
#include <span>

#include "exec/operand.hpp"
#include "model/schedule/expr.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::host {

using exec::Operand;

// Runs one compute operation (anything but Collective) on the calling thread, single-threaded, with the operands that
// `Work` documents, in that order. Element type f32, f64 or bf16 is taken from the operands. `rank` gives the dp
// coordinate that AdamW's shard needs and the tp coordinate of a slice of the vocabulary. Allocates at most small
// per-thread scratch that is kept between calls. Thread-safe for disjoint operands. Call `use_one_blas_thread()` once
// per process before.
void run_work(const Work& work, const Coordinates& rank, std::span<const Operand> operands);

// OpenBLAS must not start threads of its own: ranks and lanes are the threads.
void use_one_blas_thread();

}  // namespace stretto::host
