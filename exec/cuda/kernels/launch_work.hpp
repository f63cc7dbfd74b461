#pragma once
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/ops/expr.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Starts an operation that is neither a GEMM nor communication on a stream and returns. Operands are those that
// work.hpp documents, in device memory, in f32 or bf16 where the host's kernels take a floating type; tests compare
// each kernel with the host's run_work(). Does not synchronise, allocates nothing. Throws Error(runtime) when a launch
// is refused or the scratch is too small.
void launch_work(const Work& work, std::span<const exec::Operand> operands, const Stream& stream);

}  // namespace stretto::cuda
