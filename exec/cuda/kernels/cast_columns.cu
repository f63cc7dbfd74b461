#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

// The copy along columns, as it is or transposed. A thread has a block of a column; its neighbours have the adjacent
// columns.
template <class F, class T>
__global__ void cast_columns_kernel(BlockCast work, Rows<const T> matrix, exec::Codes to, bool transposes) {
  const CastSource<T> x = work.take_group(matrix, nullptr, &to, transposes);
  const NvTensorScale of_tensor = work.of_tensor(1);
  const std::int64_t all = (work.rows + work.block - 1) / work.block * work.cols;
  for (std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x; first < all;
       first += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t i = first + threadIdx.x, top = i / work.cols * work.block, col = i % work.cols;
    const bool is_here = i < all;
    const std::int64_t below = top + work.block < work.rows ? top + work.block : work.rows;
    float amax = 0;
    for (std::int64_t row = top; is_here && row < below; row += kChunk)
      amax = max_or_nan(amax, largest_of(chunk_of_column(x, row, col, work.hadamard)));
    const exec::BlockScale scale = exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    if (is_here) transposes ? to.put_scale(col, top, scale.bits) : to.put_scale(top, col, scale.bits);
    for (std::int64_t part = 0; part < work.block; part += kChunk) {
      const std::int64_t row = top + part;
      const bool has_row = is_here && row < below;
      CodeChunk codes = {};
      if (has_row)
        codes = cast_column<F>(chunk_of_column(x, row, col, work.hadamard), scale.factor, work.random, row, col);
      if (transposes) {
        if (has_row) store_chunk(codes, to, col, row);
        continue;
      }
      for (int n = 0; n < kChunk; ++n) {
        std::uint32_t byte = codes.at[n];
        if (to.per_byte() == 2) byte |= __shfl_xor_sync(0xffffffffu, byte, 1) << 4;  // the adjacent column
        if (has_row && col % to.per_byte() == 0) to.row(row + n)[col / to.per_byte()] = static_cast<std::uint8_t>(byte);
      }
    }
  }
}

}  // namespace

void cast_columns(const BlockCast& cast, const exec::Operand& x, bool of_codes, Dtype format, const exec::Codes& to,
                  bool transposes, const Stream& stream) {
  const auto start = [&]<class T, class F>(T, F) {
    constexpr auto kernel = cast_columns_kernel<F, T>;
    const std::int64_t threads = ceil_div(cast.rows, cast.block) * cast.cols;
    launch(stream, blocks_for(stream, threads, kernel, cast.groups.grid()), {kThreads, 1, 1}, kernel, cast,
           rows_of<const T>(x), to, transposes);
  };
  if (of_codes)
    start(static_cast<unsigned char>(0), E4m3{});
  else
    with_types(x.dtype, format, start);
}

}  // namespace stretto::cuda
