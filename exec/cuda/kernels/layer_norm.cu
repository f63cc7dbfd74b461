#include "exec/cuda/kernels/norm_kernels.hpp"

namespace stretto::cuda {

void run_kernel(const LayerNorm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run<true>(work, operands, stream);
}

}  // namespace stretto::cuda
