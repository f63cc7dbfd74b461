#pragma once
#include <span>
#include <vector>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// A product of codes with scales of blocks as cuBLASLt takes it: codes and scales apart (exec/cuda/code_scratch.hpp),
// in the end of the lane's scratch.
struct CodesApart {
  // A, B: codes alone; (bias), (inverse_a, inverse_b), scales of A, scales of B, alpha and beta [1,2] f32, C.
  std::vector<exec::Operand> operands;
  Stream stream;  // with the scratch that is left
};
// Index of the scales of A among the operands; those of B and alpha follow.
inline std::size_t scales_index(const Gemm& work) { return work.c_index(); }
// Returns where everything goes, and with `starts` starts the kernels that put it there. Throws Error(runtime) where
// the scratch has no room.
CodesApart codes_apart(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream, bool starts);

}  // namespace stretto::cuda
