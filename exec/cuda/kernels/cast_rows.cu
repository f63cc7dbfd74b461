#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

// The copy along rows. Threads of a block of x are neighbours in their warp, at most 8 of them.
template <class F, class T>
__global__ void cast_rows_kernel(BlockCast work, Rows<const T> matrix, exec::Codes to) {
  const CastSource<T> x = work.take_group(matrix, &to, nullptr, false);
  const NvTensorScale of_tensor = work.of_tensor(0);
  const std::int64_t in_block = work.block / kChunk, across = (work.cols + work.block - 1) / work.block * in_block,
                     all = work.rows * across;
  for (std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x; first < all;
       first += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t i = first + threadIdx.x, row = i / across, col = i % across * kChunk;
    const bool is_here = i < all && col < work.cols;
    Chunk chunk = {};
    if (is_here) chunk = chunk_of_row(x, row, col);
    float amax = largest_of(chunk);
    for (int mask = 1; mask < in_block; mask *= 2) amax = max_or_nan(amax, __shfl_xor_sync(0xffffffffu, amax, mask));
    if (!is_here) continue;
    const exec::BlockScale scale = exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    if (col % work.block == 0) to.put_scale(row, col, scale.bits);
    store_chunk(cast_row<F>(chunk, scale.factor, work.random, row, col), to, row, col);
  }
}

}  // namespace

void cast_rows(const BlockCast& cast, const exec::Operand& x, Dtype format, const exec::Codes& to,
               const Stream& stream) {
  with_types(x.dtype, format, [&]<class T, class F>(T, F) {
    constexpr auto kernel = cast_rows_kernel<F, T>;
    const std::int64_t threads = cast.rows * (ceil_div(cast.cols, cast.block) * cast.block / kChunk);
    launch(stream, blocks_for(stream, threads, kernel, cast.groups.grid()), {kThreads, 1, 1}, kernel, cast,
           rows_of<const T>(x), to);
  });
}

}  // namespace stretto::cuda
