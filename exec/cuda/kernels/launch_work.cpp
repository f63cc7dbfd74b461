#include "exec/cuda/kernels/launch_work.hpp"

#include <cassert>
#include <variant>

#include "base/overloaded.hpp"
#include "exec/cuda/kernels/families.hpp"

namespace stretto::cuda {

void launch_work(const Work& work, std::span<const exec::Operand> operands, const Stream& stream) {
  std::visit(Overloaded{
                 [&](const auto& compute) { run_kernel(compute, operands, stream); },
                 []<OfLinearAttention W>(const W&) { assert(false && "missing_kernel() refuses it"); },
                 [](const Gemm&) { assert(false && "cuBLAS's"); },
                 [](const GroupedGemm&) { assert(false && "cuBLAS's"); },
                 [](const Collective&) { assert(false && "launched by who knows the others"); },
                 [](const PointToPoint&) { assert(false && "the same"); },
             },
             work);
}

}  // namespace stretto::cuda
