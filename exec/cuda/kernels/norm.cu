// LayerNorm and RMSNorm. A warp computes a row of a head, which it reads from memory once and then from the cache; for
// both gradients at once a block computes a row, which it keeps in registers.
#include <vector>

#include "exec/cuda/kernels/column_sums.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

// Rows of an operand, each of which is `heads` rows of `cols` elements side by side.
template <class T>
struct HeadRows {
  Rows<T> rows;
  std::int64_t heads = 1, cols = 0;
  __device__ T* row(std::int64_t i) const { return heads == 1 ? rows.row(i) : rows.row(i / heads) + i % heads * cols; }
};

constexpr unsigned kRowsOfBlock = 4;
constexpr unsigned kMostThreads = 512;  // threads of a block that computes both gradients

// stats[rows, 2] (mean, reciprocal standard deviation) when `kCentred`, as in LayerNorm; else [rows, 1].
template <bool kCentred>
struct RowStats {
  float mean = 0, scale = 1;
  __device__ RowStats() {}
  __device__ explicit RowStats(const float* of_row) {
    if constexpr (kCentred) mean = of_row[0];
    scale = of_row[kCentred ? 1 : 0];
  }
  __device__ void write(float* of_row) const {
    if constexpr (kCentred) of_row[0] = mean;
    of_row[kCentred ? 1 : 0] = scale;
  }
};

template <class T>
HeadRows<T> heads_of(const exec::Operand& operand, std::int64_t heads) {
  return {rows_of<T>(operand), heads, operand.cols / heads};
}

__device__ std::int64_t row_of_warp() { return std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y; }

template <int N, bool kCentred, class T>
__global__ void forward_kernel(std::int64_t rows, std::int64_t cols, float epsilon, HeadRows<const T> in, const T* gamma,
                               const T* beta, HeadRows<T> out, HeadRows<float> stats) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;  // a whole warp returns
  const T* x = in.row(row);
  const std::int64_t first = std::int64_t{threadIdx.x} * N, stride = kWarp * N;
  RowStats<kCentred> own;
  float v[N];
  if constexpr (kCentred) {
    float sum = 0;
    for (std::int64_t col = first; col < cols; col += stride) {
      load(v, x + col);
#pragma unroll
      for (int n = 0; n < N; ++n) sum += v[n];
    }
    own.mean = warp_sum(sum) / static_cast<float>(cols);
  }
  float squares = 0;
  for (std::int64_t col = first; col < cols; col += stride) {
    load(v, x + col);
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (v[n] - own.mean) * (v[n] - own.mean);
  }
  own.scale = 1.0f / sqrt(warp_sum(squares) / static_cast<float>(cols) + epsilon);
  for (std::int64_t col = first; col < cols; col += stride) {
    float g[N], b[N] = {};
    load(v, x + col);
    load(g, gamma + col);
    if constexpr (kCentred) load(b, beta + col);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = (v[n] - own.mean) * own.scale * g[n] + b[n];
    store(out.row(row) + col, v);
  }
  if (threadIdx.x == 0) own.write(stats.row(row));
}

// With g = dy∘gamma and x̂ the normalised row: dx = scale · (g − mean(g) − x̂ · mean(g∘x̂)); without mean(g) when the row
// was not centred.
template <int N, bool kCentred, class T>
__global__ void dgrad_kernel(std::int64_t rows, std::int64_t cols, HeadRows<const T> dy, HeadRows<const T> in,
                             HeadRows<const float> stats, const T* gamma, HeadRows<T> dx, bool accumulates) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const RowStats<kCentred> own(stats.row(row));
  const std::int64_t first = std::int64_t{threadIdx.x} * N, stride = kWarp * N;
  float sum_g = 0, sum_gx = 0;
  float d[N], x[N], g[N];
  for (std::int64_t col = first; col < cols; col += stride) {
    load(d, dy.row(row) + col);
    load(x, in.row(row) + col);
    load(g, gamma + col);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum_g += d[n] * g[n];
      sum_gx += d[n] * g[n] * (x[n] - own.mean);
    }
  }
  const float mean_g = kCentred ? warp_sum(sum_g) / static_cast<float>(cols) : 0.0f;
  const float mean_gx = warp_sum(sum_gx) * own.scale / static_cast<float>(cols);
  for (std::int64_t col = first; col < cols; col += stride) {
    float old[N] = {};
    load(d, dy.row(row) + col);
    load(x, in.row(row) + col);
    load(g, gamma + col);
    T* to = dx.row(row) + col;
    if (accumulates) load(old, to);
#pragma unroll
    for (int n = 0; n < N; ++n)
      d[n] = old[n] + own.scale * (d[n] * g[n] - mean_g - (x[n] - own.mean) * own.scale * mean_gx);
    store(to, d);
  }
}

// The addends of dgamma: dy ∘ x̂; of dbeta, when centred: dy.
template <int N, bool kCentred, class T>
struct WeightGradient {
  HeadRows<const T> dy, x;
  HeadRows<const float> stats;
  __device__ void operator()(std::int64_t row, std::int64_t col, float (&out)[kCentred ? 2 : 1][N]) const {
    const RowStats<kCentred> own(stats.row(row));
    float d[N], v[N];
    load(d, dy.row(row) + col);
    load(v, x.row(row) + col);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      out[0][n] = d[n] * (v[n] - own.mean) * own.scale;
      if constexpr (kCentred) out[1][n] = d[n];
    }
  }
};

// Computes both gradients. Thread t has the packs t, t + blockDim.x, … of columns, kPacks of them, of kRows rows at a
// time: their dy and x are read once, and the gradients of the weights add up in registers over all rows of the block.
// partial[block][sum][cols] as in column_sums.hpp. N · kPacks · blockDim.x is at least cols, which N divides.
template <int N, int kPacks, int kRows, bool kCentred, class T>
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(std::int64_t rows, std::int64_t cols, std::int64_t rows_of_block, HeadRows<const T> dy,
                    HeadRows<const T> in, HeadRows<const float> stats, const T* gamma, HeadRows<T> dx, bool accumulates,
                    float* partial) {
  constexpr int kSums = kCentred ? 2 : 1;
  using Columns = Pack<T, N>;
  // Sums of g and of g∘x̂. They are double-buffered: fast warps write the next while others still read this one.
  __shared__ float of_warp[2][kRows][2][kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const std::int64_t begin = blockIdx.x * rows_of_block;
  const std::int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  const auto at = [](auto* row, std::int64_t col) { return pack_at<const Columns>(row + col); };
  std::int64_t col[kPacks];
  float g[kPacks][N] = {}, sum[kSums][kPacks][N] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    col[p] = (std::int64_t{threadIdx.x} + p * std::int64_t{blockDim.x}) * N;
    if (col[p] < cols) load(g[p], gamma + col[p]);
  }
  int turn = 0;
  for (std::int64_t row = begin; row < end; row += kRows, turn ^= 1) {
    Columns d[kRows][kPacks] = {}, x[kRows][kPacks] = {}, old[kRows][kPacks] = {};
    RowStats<kCentred> own[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= end) continue;
      own[r] = RowStats<kCentred>(stats.row(row + r));
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        if (col[p] < cols) {
          d[r][p] = *at(dy.row(row + r), col[p]);
          x[r][p] = *at(in.row(row + r), col[p]);
          if (accumulates) old[r][p] = *at(dx.row(row + r), col[p]);
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float sum_g = 0, sum_gx = 0;
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float of_y = widened(d[r][p].at[n]), hat = (widened(x[r][p].at[n]) - own[r].mean) * own[r].scale;
          sum[0][p][n] += of_y * hat;
          if constexpr (kCentred) sum[1][p][n] += of_y;
          sum_g += of_y * g[p][n];
          sum_gx += of_y * g[p][n] * hat;
        }
      if constexpr (kCentred) sum_g = warp_sum(sum_g);
      sum_gx = warp_sum(sum_gx);
      if (lane == 0) of_warp[turn][r][0][warp] = sum_g, of_warp[turn][r][1][warp] = sum_gx;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto mean_of = [&](int which) {
        return warp_sum(lane < warps ? of_warp[turn][r][which][lane] : 0.0f) / static_cast<float>(cols);
      };
      const float mean_g = kCentred ? mean_of(0) : 0.0f, mean_gx = mean_of(1);
      if (row + r >= end) continue;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (col[p] >= cols) continue;
        float to[N];
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float hat = (widened(x[r][p].at[n]) - own[r].mean) * own[r].scale;
          to[n] = widened(old[r][p].at[n]) + own[r].scale * (widened(d[r][p].at[n]) * g[p][n] - mean_g - hat * mean_gx);
        }
        store(dx.row(row + r) + col[p], to);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (col[p] < cols)
#pragma unroll
        for (int n = 0; n < N; ++n) partial[(std::int64_t{blockIdx.x} * kSums + s) * cols + col[p] + n] = sum[s][p][n];
}

template <int N, int kPacks, int kRows, bool kCentred, class T>
void run_backward(std::int64_t rows, std::int64_t cols, std::int64_t heads, std::span<const exec::Operand> o,
                  const Stream& stream) {
  constexpr int kSums = kCentred ? 2 : 1;
  const unsigned threads = static_cast<unsigned>(ceil_div(cols, std::int64_t{N} * kPacks * kWarp)) * kWarp;
  constexpr auto kernel = backward_kernel<N, kPacks, kRows, kCentred, T>;
  const std::int64_t blocks =
      std::min({resident_blocks(stream, kernel, threads), ceil_div(rows, std::int64_t{4} * kRows),
                chunks_in_scratch(stream, cols, kSums)});
  const auto in = [&](std::size_t i) { return heads_of<const T>(o[i], heads); };
  launch(stream, {static_cast<unsigned>(blocks), 1, 1}, {threads, 1, 1}, kernel, rows, cols, ceil_div(rows, blocks),
         in(0), in(1), heads_of<const float>(o[2], heads), static_cast<const T*>(o[3].data),
         heads_of<T>(o.back(), heads), o.back().mode == AccessMode::accumulate, static_cast<float*>(stream.scratch));
  SumOutputs<kSums> out;
  for (std::size_t s = 0; s < kSums; ++s) out.at[s] = static_cast<float*>(o[4 + s].data);
  add_partial_sums(stream, cols, blocks, out);
}

template <int N, bool kCentred, class T>
void run(Pass pass, std::int64_t rows, std::int64_t cols, std::int64_t heads, float epsilon,
         std::span<const exec::Operand> o, const Stream& stream) {
  const auto in = [&](std::size_t i) { return heads_of<const T>(o[i], heads); };
  const auto vector = [&](std::size_t i) { return static_cast<const T*>(o[i].data); };
  const auto floats = [&](std::size_t i) { return static_cast<float*>(o[i].data); };
  const dim3 grid{static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)), 1, 1}, block{kWarp, kRowsOfBlock, 1};
  switch (pass) {
    case Pass::forward:
      return launch(stream, grid, block, forward_kernel<N, kCentred, T>, rows, cols, epsilon, in(0), vector(1),
                    kCentred ? vector(2) : nullptr, heads_of<T>(o[kCentred ? 3 : 2], heads),
                    heads_of<float>(o[kCentred ? 4 : 3], heads));
    case Pass::dgrad:
      return launch(stream, grid, block, dgrad_kernel<N, kCentred, T>, rows, cols, in(0), in(1),
                    heads_of<const float>(o[2], heads), vector(3), heads_of<T>(o[4], heads),
                    o[4].mode == AccessMode::accumulate);
    case Pass::wgrad: {
      // A pack has half of the largest size, because there are two sums.
      constexpr int n = N > 1 ? N / 2 : 1;
      const WeightGradient<n, kCentred, T> addends{in(0), in(1), heads_of<const float>(o[2], heads)};
      if constexpr (kCentred)
        return add_column_sums<n, 2>(stream, rows, cols, {{floats(3), floats(4)}}, addends);
      else
        return add_column_sums<n, 1>(stream, rows, cols, {{floats(3)}}, addends);
    }
    case Pass::backward: {
      if constexpr (N > 1) {
        if (cols <= N * std::int64_t{kMostThreads})
          return run_backward<N, 1, 2, kCentred, T>(rows, cols, heads, o, stream);
        if (cols <= 2 * N * std::int64_t{kMostThreads})
          return run_backward<N, 2, 1, kCentred, T>(rows, cols, heads, o, stream);
      }
      // Rows that are not aligned, or longer than registers hold, get the two gradients one after the other.
      std::vector<exec::Operand> weights(o.begin(), o.begin() + 3), stream_of_rows(o.begin(), o.begin() + 4);
      weights.insert(weights.end(), o.begin() + 4, o.end() - 1);
      stream_of_rows.push_back(o.back());
      run<N, kCentred, T>(Pass::wgrad, rows, cols, heads, epsilon, weights, stream);
      return run<N, kCentred, T>(Pass::dgrad, rows, cols, heads, epsilon, stream_of_rows, stream);
    }
  }
}

template <bool kCentred, class Norm>
void run(const Norm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const std::int64_t cols = work.cols, heads = work.heads;
  const auto epsilon = static_cast<float>(work.epsilon);
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int widest = 16 / static_cast<int>(sizeof(T));
    bool packs = cols % widest == 0;
    for (const exec::Operand& operand : operands)
      if (operand.dtype == operands[0].dtype && (operand.cols == cols || operand.cols == heads * cols))
        packs = packs && is_packable(rows_of<const T>(operand), widest);
    packs ? run<widest, kCentred, T>(work.pass, work.all_rows(), cols, heads, epsilon, operands, stream)
          : run<1, kCentred, T>(work.pass, work.all_rows(), cols, heads, epsilon, operands, stream);
  });
}

}  // namespace

void run_kernel(const LayerNorm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run<true>(work, operands, stream);
}
void run_kernel(const RmsNorm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run<false>(work, operands, stream);
}

}  // namespace stretto::cuda
