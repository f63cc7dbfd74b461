#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

// partial[groups, blocks, 2]: the largest magnitudes of x and of its transform.
template <class T>
__global__ void amax_kernel_of_both(Groups groups, std::int64_t cols, Rows<const T> matrix, float* partial) {
  const GroupPlace place = groups.place(blockIdx.z);
  const CastSource<T> x{{matrix.data + place.at * matrix.ld, matrix.ld}, place.rows, cols};
  const std::int64_t all = place.padded / kChunk * cols;
  float plain = 0, turned = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    Chunk chunk = chunk_of_column(x, i / cols * kChunk, i % cols, false);
    plain = max_or_nan(plain, largest_of(chunk));
    transform(chunk);
    turned = max_or_nan(turned, largest_of(chunk));
  }
  const float of_plain = block_max(plain), of_turned = block_max(turned);
  if (threadIdx.x != 0) return;
  float* own = partial + 2 * (std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x);
  own[0] = of_plain;
  own[1] = of_turned;
}
// amax[group], amax[groups + group] = the largest of partial[group][count, 2]. A block a group.
__global__ void largest_of_both_kernel(const float* partials, std::int64_t count, float* amax) {
  const float* partial = partials + 2 * count * blockIdx.x;
  float plain = 0, turned = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    plain = max_or_nan(plain, partial[2 * i]);
    turned = max_or_nan(turned, partial[2 * i + 1]);
  }
  const float of_plain = block_max(plain), of_turned = block_max(turned);
  if (threadIdx.x != 0) return;
  amax[blockIdx.x] = of_plain;
  amax[gridDim.x + blockIdx.x] = of_turned;
}

}  // namespace

void amax_of_both(const Amax& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const Groups groups({work.groups, work.rows, work.capacity, work.equal}, work.has_offsets() ? &operands[1] : nullptr,
                      group_rows_of(Scaling::nv));
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr auto kernel = amax_kernel_of_both<T>;
    dim3 grid = blocks_for(stream, ceil_div(work.matrix_rows(), kChunk) * work.cols, kernel, groups.grid());
    grid.x = std::clamp(static_cast<unsigned>(stream.scratch_bytes / (2 * sizeof(float)) / groups.grid()), 1u, grid.x);
    launch(stream, grid, {kThreads, 1, 1}, kernel, groups, work.cols, rows_of<const T>(operands[0]),
           static_cast<float*>(stream.scratch));
    launch(stream, {groups.grid(), 1, 1}, {1024, 1, 1}, largest_of_both_kernel,
           static_cast<const float*>(stream.scratch), std::int64_t{grid.x}, static_cast<float*>(operands.back().data));
  });
}

}  // namespace stretto::cuda
