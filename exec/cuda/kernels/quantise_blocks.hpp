#pragma once
#include <span>

#include "exec/cuda/kernels/launch.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// Codes with a scale for each block, of a matrix or of groups of rows (families.hpp has the kinds of work). Launches are
// asynchronous on the stream.
void quantise_blocks(const Quantise& work, std::span<const exec::Operand> operands, const Stream& stream);
void transpose_blocks(const TransposeCodes& work, std::span<const exec::Operand> operands, const Stream& stream);
// Amax with `hadamard`.
void amax_of_both(const Amax& work, std::span<const exec::Operand> operands, const Stream& stream);

__device__ inline float magnitude(float x) { return x < 0 ? -x : x; }  // a NaN stays

}  // namespace stretto::cuda
