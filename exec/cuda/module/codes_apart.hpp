#pragma once
#include <span>
#include <vector>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// A product of codes as cuBLASLt takes it (exec/cuda/code_scratch.hpp). With scales of blocks, codes and scales are
// apart, in the end of the lane's scratch; else the tensors' factors are there, at aligned addresses.
struct CodesApart {
  // A, B: codes alone; (bias), (inverse_a, inverse_b), and with scales of blocks: scales of A, scales of B, alpha and
  // beta [1,2] f32; C.
  std::vector<exec::Operand> operands;
  Stream stream;  // with the scratch that is left
};
// Index of the scales of A among the operands of a product with scales of blocks; those of B and alpha follow.
inline std::size_t scales_index(const Gemm& work) { return work.c_index(); }
// Returns where everything goes, and with `starts` starts the kernels that put it there. Throws Error(runtime) where
// the scratch has no room.
CodesApart codes_apart(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream, bool starts);

}  // namespace stretto::cuda
