#pragma once
#include <functional>
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Starts a product of codes as products that cuBLASLt has, and the kernels around them:
//   rows  With scales of 128 codes the rows of A come in eights (TransformerEngine at d0067d0,
//         common/gemm/cublaslt_gemm.cu:298). The last m % 8 rows are a product of their own, of eight rows in the end
//         of the lane's scratch; the first m % 8 of them go to C.
//   bias  A product with C in f32 has no bias in f32 (cuBLASLt's table of types for products of 8 bits), so a kernel
//         adds it.
// Calls start(work, operands, stream) for each product, with the scratch that is left for it. A product without codes
// is started as it is.
using StartProduct = std::function<void(const Gemm&, std::span<const exec::Operand>, const Stream&)>;
void for_each_product(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                      const StartProduct& start);

}  // namespace stretto::cuda
