#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/operand.hpp"
#include "model/ops/expr.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::host {

using exec::Operand;

// Runs one compute operation (anything but Collective) on the calling thread, single-threaded, with the operands that
// work.hpp documents, in that order. `work` is evaluated (BoundProgram::works). The element type f32, f64 or bf16 is
// taken from the operands. Allocates at most small per-thread scratch that is kept between calls. Thread-safe for
// disjoint operands. Call `prepare_blas()` before.
void run_work(const Work& work, std::span<const Operand> operands);

// Prepares for `threads` threads that compute at once; a later call may raise the number. OpenBLAS must not use threads
// of its own: ranks and lanes are the threads. Throws Error(runtime) when there is no memory for OpenBLAS's buffer of
// each thread.
void prepare_blas(std::size_t threads = 1);

}  // namespace stretto::host
