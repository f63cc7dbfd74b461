#include "exec/cuda/kernels/block_casts.hpp"

namespace stretto::cuda {
namespace {

// Both copies of squares, which have equal codes: a thread block has kArea × kArea numbers.
constexpr int kArea = 128, kAreaThreads = 256, kAcross = kArea / kChunk;
template <class F, class T>
__global__ void cast_squares_kernel(BlockCast work, Rows<const T> matrix, exec::Codes rowwise, exec::Codes columnwise,
                                    bool transposes) {
  __shared__ float amaxes[kArea][kAcross];
  __shared__ std::uint8_t tile[kArea][kArea + 4];
  const CastSource<T> x = work.take_group(matrix, &rowwise, &columnwise, transposes);
  const NvTensorScale of_tensor = work.of_tensor(0);
  const std::int64_t across = (work.cols + kArea - 1) / kArea, areas = (work.rows + kArea - 1) / kArea * across;
  const auto square = static_cast<int>(work.block);
  const int chunk = static_cast<int>(threadIdx.x) % kAcross, first = static_cast<int>(threadIdx.x) / kAcross;
  constexpr int kStep = kAreaThreads / kAcross;
  for (std::int64_t area = blockIdx.x; area < areas; area += gridDim.x) {
    const std::int64_t top = area / across * kArea, col = area % across * kArea + chunk * kChunk;
    float own = 0;
    for (int r = first; r < kArea; r += kStep) {
      amaxes[r][chunk] = top + r < work.rows && col < work.cols ? largest_of(chunk_of_row(x, top + r, col)) : 0.0f;
      own = max_or_nan(own, amaxes[r][chunk]);
    }
    const float of_area = block_max(own);  // a barrier too
    const auto scale_at = [&](int r, int c) {
      float amax = of_area;
      if (square < kArea) {
        amax = 0;
        for (int n = 0; n < square; ++n) amax = max_or_nan(amax, amaxes[r / square * square + n][c]);
      }
      return exec::block_scale(work.scaling, amax, F::kMax, of_tensor);
    };
    const bool is_one = square == kArea;  // one stored scale for a square, otherwise one for each row of it
    for (int r = first; r < kArea; r += kStep) {
      const std::int64_t row = top + r;
      if (row >= work.rows || col >= work.cols) continue;
      const exec::BlockScale scale = scale_at(r, chunk);
      const CodeChunk codes = cast_row<F>(chunk_of_row(x, row, col), scale.factor, work.random, row, col);
      for (int n = 0; n < kChunk; ++n) tile[r][chunk * kChunk + n] = codes.at[n];
      const bool has_scale = is_one ? r == 0 && chunk == 0 : true;
      if (rowwise.data != nullptr) {
        if (has_scale) rowwise.put_scale(row, col, scale.bits);
        store_chunk(codes, rowwise, row, col);
      }
      if (columnwise.data == nullptr || transposes) continue;
      if (is_one && has_scale) columnwise.put_scale(row, col, scale.bits);
      if (!is_one && r % square == 0)
        for (int n = 0; n < kChunk; ++n) columnwise.put_scale(row, col + n, scale.bits);
      store_chunk(codes, columnwise, row, col);
    }
    __syncthreads();
    if (columnwise.data != nullptr && transposes)
      for (int i = static_cast<int>(threadIdx.x); i < kArea * kAcross; i += kAreaThreads) {
        const int c = i / kAcross, r = i % kAcross * kChunk;
        const std::int64_t row = top + r, column = area % across * kArea + c;
        if (row >= work.rows || column >= work.cols) continue;
        CodeChunk codes;
        for (int n = 0; n < kChunk; ++n) codes.at[n] = tile[r + n][c];
        if (is_one ? r == 0 && c == 0 : true) columnwise.put_scale(column, row, scale_at(r, c / kChunk).bits);
        store_chunk(codes, columnwise, column, row);
      }
    __syncthreads();
  }
}

}  // namespace

void cast_squares(const BlockCast& cast, const exec::Operand& x, Dtype format, const exec::Codes& rowwise,
                  const exec::Codes& columnwise, bool transposes, const Stream& stream) {
  with_types(x.dtype, format, [&]<class T, class F>(T, F) {
    constexpr auto kernel = cast_squares_kernel<F, T>;
    const std::int64_t areas = ceil_div(cast.rows, kArea) * ceil_div(cast.cols, kArea);
    const std::int64_t resident = ceil_div(resident_blocks(stream, kernel, kAreaThreads), cast.groups.grid());
    const auto blocks = static_cast<unsigned>(std::min(areas, resident));
    launch(stream, {blocks, 1, cast.groups.grid()}, {kAreaThreads, 1, 1}, kernel, cast, rows_of<const T>(x), rowwise,
           columnwise, transposes);
  });
}

}  // namespace stretto::cuda
