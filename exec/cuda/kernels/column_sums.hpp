#pragma once
// Sums over the rows of a matrix for every column, which biases and the weights of norms need as gradients. There are
// two kernels: blocks sum chunks of rows into the scratch, then a few threads for each column add the chunks, each its
// own in order, and their sums. The result depends on the shape, the device and the size of the scratch, never on
// timing. Both kernels run on one stream; its scratch must stay unchanged until the second has run.
#include "exec/cuda/kernels/launch.hpp"

namespace stretto::cuda {

constexpr int kSumRows = 8;        // rows that a block takes at a time
constexpr int kRowsAhead = 4;      // such rows whose loads are in flight together: those of one do not fill the memory
constexpr unsigned kAddRows = 32;  // the most threads that add chunks of a column

// partial[chunk][sum][cols], f32. Blocks are kWarp x kSumRows threads: columns along x, rows along y, chunks along
// blockIdx.y. Addends(row, col, float (&)[Sums][N]) gives N columns from `col` on, of each of the sums.
template <int N, int Sums, class Addends>
__global__ void partial_sums_kernel(std::int64_t rows, std::int64_t cols, std::int64_t rows_of_chunk, float* partial,
                                    Addends addends) {
  __shared__ float of_row[Sums][kSumRows][kWarp][N];
  const std::int64_t col = (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * N;
  const std::int64_t begin = blockIdx.y * rows_of_chunk;
  const std::int64_t end = begin + rows_of_chunk < rows ? begin + rows_of_chunk : rows;
  float sum[Sums][N] = {};
  const auto add = [&](const float(&x)[Sums][N]) {
#pragma unroll
    for (int s = 0; s < Sums; ++s)
#pragma unroll
      for (int n = 0; n < N; ++n) sum[s][n] += x[s][n];
  };
  if (col < cols) {
    std::int64_t row = begin + threadIdx.y;
    for (; row + (kRowsAhead - 1) * kSumRows < end; row += kRowsAhead * kSumRows) {
      float x[kRowsAhead][Sums][N];
#pragma unroll
      for (int ahead = 0; ahead < kRowsAhead; ++ahead) addends(row + ahead * kSumRows, col, x[ahead]);
#pragma unroll
      for (int ahead = 0; ahead < kRowsAhead; ++ahead) add(x[ahead]);
    }
    for (; row < end; row += kSumRows) {
      float x[Sums][N];
      addends(row, col, x);
      add(x);
    }
  }
#pragma unroll
  for (int s = 0; s < Sums; ++s)
#pragma unroll
    for (int n = 0; n < N; ++n) of_row[s][threadIdx.y][threadIdx.x][n] = sum[s][n];
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
#pragma unroll
  for (int s = 0; s < Sums; ++s)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float total = 0;
#pragma unroll
      for (int row = 0; row < kSumRows; ++row) total += of_row[s][row][threadIdx.x][n];
      partial[(blockIdx.y * Sums + s) * cols + col + n] = total;
    }
}

template <int Sums>
struct SumOutputs {
  float* at[Sums];
};
// out[s][col] += Σ over chunks of partial[chunk][s][cols]. Blocks are kWarp columns x at most kAddRows threads that
// share the chunks.
template <int Sums>
__global__ void add_partial_sums_kernel(std::int64_t cols, int chunks, const float* partial, SumOutputs<Sums> out) {
  __shared__ float of_row[Sums][kAddRows][kWarp];
  const std::int64_t col = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum[Sums] = {};
  if (col < cols)
    for (int chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y)
#pragma unroll
      for (int s = 0; s < Sums; ++s) sum[s] += partial[(std::int64_t{chunk} * Sums + s) * cols + col];
#pragma unroll
  for (int s = 0; s < Sums; ++s) of_row[s][threadIdx.y][threadIdx.x] = sum[s];
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
#pragma unroll
  for (int s = 0; s < Sums; ++s) {
    float total = 0;
    for (unsigned row = 0; row < blockDim.y; ++row) total += of_row[s][row][threadIdx.x];
    out.at[s][col] += total;
  }
}
// Adds to `out` the sums that a previous kernel of the stream left in the scratch, partial[chunk][sum][cols] of
// `chunks` >= 1.
template <int Sums>
void add_partial_sums(const Stream& stream, std::int64_t cols, std::int64_t chunks, SumOutputs<Sums> out) {
  unsigned rows = 1;
  while (rows < kAddRows && rows < chunks) rows *= 2;
  launch(stream, {static_cast<unsigned>(ceil_div(cols, kWarp)), 1, 1}, {kWarp, rows, 1}, add_partial_sums_kernel<Sums>,
         cols, static_cast<int>(chunks), static_cast<const float*>(stream.scratch), out);
}
// Returns the chunks of `sums` rows of `cols` floats that the scratch holds. It must hold one: kScratch_bytes suffices
// for any model.
inline std::int64_t chunks_in_scratch(const Stream& stream, std::int64_t cols, int sums) {
  const auto fit = static_cast<std::int64_t>(stream.scratch_bytes / sizeof(float)) / (sums * cols);
  assert(fit >= 1 && "the scratch holds a row of sums");
  return fit;
}

// out[s][col] += Σ over rows of the addends, s < Sums. `out` are vectors of `cols` in f32, which must not overlap the
// addends' inputs. N divides `cols`, and the addends may read N columns at once. Needs at least Sums · cols floats of
// scratch, and uses more if the stream has more.
template <int N, int Sums, class Addends>
void add_column_sums(const Stream& stream, std::int64_t rows, std::int64_t cols, SumOutputs<Sums> out,
                     Addends addends) {
  const std::int64_t tiles = ceil_div(cols, std::int64_t{kWarp} * N);
  const std::int64_t fit = chunks_in_scratch(stream, cols, Sums);
  constexpr auto kernel = partial_sums_kernel<N, Sums, Addends>;
  const std::int64_t resident = resident_blocks(stream, kernel, kWarp * kSumRows);
  // A chunk has at least 64 rows.
  const std::int64_t chunks =
      std::max<std::int64_t>(1, std::min({resident / tiles, ceil_div(rows, 64), fit, std::int64_t{65535}}));
  const std::int64_t rows_of_chunk = ceil_div(rows, chunks);
  launch(stream, {static_cast<unsigned>(tiles), static_cast<unsigned>(chunks), 1}, {kWarp, kSumRows, 1}, kernel, rows,
         cols, rows_of_chunk, static_cast<float*>(stream.scratch), addends);
  add_partial_sums(stream, cols, chunks, out);
}

}  // namespace stretto::cuda
