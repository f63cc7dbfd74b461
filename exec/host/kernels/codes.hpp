#pragma once
#include <span>

#include "exec/codes.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {

using exec::Codes;
using exec::codes_of;
using exec::with_format;

// Writes the numbers of rows [first, first + count), all columns, without the tensor's factor: code × scale of the
// block, which is exact in f32. numbers[count, cols].
void decode(const Codes& codes, std::int64_t first, std::int64_t count, float* numbers);

// A Gemm with scalings and without an epilogue, with the operands of work.hpp.
void gemm_of_codes(const Gemm& work, std::span<const Operand> operands);
// A GroupedGemm with scalings: for each group that product of its codes. A group without rows has results neither in y
// nor in dweights.
void grouped_gemm_of_codes(const GroupedGemm& work, std::span<const Operand> operands);

}  // namespace stretto::host
