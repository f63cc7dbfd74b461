#pragma once
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/expr.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Whether an operation is one of our own kernels, and not a GEMM, attention or communication.
bool is_kernel_work(const Work& work);

// Starts such an operation on a stream and returns. Operands as `Work` documents, in device memory, in f32 or bf16 where
// the host's kernels take a floating type; the host's run_work() is what each is tested against. `rank` as there. Does
// not synchronise, allocates nothing. Throws Error(runtime) when a launch is refused or the scratch is too small.
void launch_work(const Work& work, const Coordinates& rank, std::span<const exec::Operand> operands,
                 const Stream& stream);

}  // namespace stretto::cuda
