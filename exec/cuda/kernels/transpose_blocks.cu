#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

// A thread has kChunk codes of a column, which are neighbours in `to`.
__global__ void transpose_kernel(exec::Codes from, exec::Codes to) {
  const std::int64_t down = from.rows / kChunk, all = down * from.cols, block = from.rule().block,
                     step = from.scaling == Scaling::block_128x128 ? block : 1;
  const auto per_byte = from.per_byte();
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t row = i / from.cols * kChunk, col = i % from.cols;
    CodeChunk codes;
    for (int n = 0; n < kChunk; ++n) {
      const std::uint8_t byte = from.row(row + n)[col / per_byte];
      codes.at[n] = per_byte == 1 ? byte : static_cast<std::uint8_t>(byte >> col % 2 * 4 & 15);
    }
    store_chunk(codes, to, col, row);
    if (row % block == 0 && col % step == 0) to.put_scale(col, row, from.scale_bits_at(row, col));
  }
}

}  // namespace

void transpose_blocks(const TransposeCodes& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const exec::Codes from = exec::codes_of(operands[0], work.scaling, ScaledAlong::columns, work.rows, work.cols),
                    to = exec::codes_of(operands[1], work.scaling, ScaledAlong::rows, work.cols, work.rows);
  launch(stream, blocks_for(stream, work.rows / kChunk * work.cols, transpose_kernel), {kThreads, 1, 1},
         transpose_kernel, from, to);
}

}  // namespace stretto::cuda
