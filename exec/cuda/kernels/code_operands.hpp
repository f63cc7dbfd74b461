#pragma once
#include <cstdint>

#include "exec/codes.hpp"
#include "exec/cuda/kernels/stream.hpp"

namespace stretto::cuda {

// Codes with scales of blocks as cuBLASLt takes them: codes apart from scales, and scales in an order of its own, for
// the factor of a product that sums along the axis of the scales. An outer index counts the rows of a matrix whose
// codes are along rows, otherwise its columns; an inner one counts blocks.
//   mx, nv         a byte for each, in tiles of 128 outer × 4 inner indices, 512 bytes each, those along the inner axis
//                  one after the other; within a tile at (outer % 32) · 16 + outer / 32 · 4 + inner; zeros beyond the
//                  matrix
//   block_128      f32[inner][outer], outer rounded up to a multiple of 4
//   block_128x128  f32[outer / 128][inner], inner rounded up to a multiple of 4
// (TransformerEngine at d0067d0: tests/cpp/operator/test_swizzle.cu:30, pytorch/csrc/quantizer.cpp:1442.)
struct ScaleGrid {
  std::int64_t outer = 0, inner = 0;                // of the scales that there are
  std::int64_t padded_outer = 0, padded_inner = 0;  // with those beyond the matrix
  std::int64_t bytes = 0;
};
inline ScaleGrid scale_grid_of(Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols) {
  const ScalingRule rule = rule_of(scaling);
  const auto rounded = GroupedRows::rounded;
  const bool is_along_rows = along == ScaledAlong::rows, is_byte = rule.scale_bytes == 1;
  ScaleGrid grid;
  grid.outer = is_along_rows ? rows : cols;
  grid.inner = rounded(is_along_rows ? cols : rows, rule.block) / rule.block;
  if (scaling == Scaling::block_128x128) grid.outer = rounded(grid.outer, rule.block) / rule.block;
  grid.padded_outer = rounded(grid.outer, is_byte ? 128 : scaling == Scaling::block_128 ? 4 : 1);
  grid.padded_inner = rounded(grid.inner, is_byte || scaling == Scaling::block_128x128 ? 4 : 1);
  grid.bytes = grid.padded_outer * grid.padded_inner * rule.scale_bytes;
  return grid;
}

// Launches, asynchronous on the stream. Writes the scales of `codes` to `to`, of as many bytes as its grid.
void arrange_scales(const exec::Codes& codes, void* to, const Stream& stream);
// Writes the codes of `codes` without scales to `to`, in rows of `ld` bytes.
void copy_codes(const exec::Codes& codes, void* to, std::int64_t ld, const Stream& stream);
constexpr std::int64_t kFactor_bytes = 16;  // alignment of a tensor's factor
// Writes the tensors' factors to `to` and to kFactor_bytes after it.
void align_factors(const float* inverse_a, const float* inverse_b, float* to, const Stream& stream);
// c[rows,cols] += bias[1,cols]; both f32.
void add_bias(const exec::Operand& bias, const exec::Operand& c, const Stream& stream);
// Writes the first rows of `from` to c, or adds them where c accumulates. Both have c's type, f32 or bf16.
void put_rows(const exec::Operand& from, const exec::Operand& c, const Stream& stream);
// to[2] = {*inverse_a · *inverse_b, beta}: the numbers by which cuBLASLt multiplies a product and what it is added to.
void multiply_factors(const float* inverse_a, const float* inverse_b, float beta, float* to, const Stream& stream);

}  // namespace stretto::cuda
