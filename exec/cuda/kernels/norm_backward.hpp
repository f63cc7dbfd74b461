#pragma once
// Both gradients of LayerNorm and RMSNorm at once: dx, and those of the weights. norm_kernels.hpp alone includes this file.
#include <type_traits>

#include "exec/cuda/kernels/column_sums.hpp"
#include "exec/cuda/kernels/norm_rows.hpp"

namespace stretto::cuda {

constexpr unsigned kBackwardWarps = 8;      // rows that a block computes at once, a warp each
constexpr unsigned kBackwardThreads = 512;  // most threads of a block that computes a row

// Computes both gradients, a warp a row. Lane l has the packs l, l + 32, … of columns, kPacks of them, and the
// gradients of the weights add up in its registers over all rows of the warp, so that warps of a block meet only at its
// end. partial[block][sum][cols] as in column_sums.hpp. N · kPacks · 32 is at least cols, which N divides.
template <int N, int kPacks, bool kCentred, class T>
__global__ void __launch_bounds__(kBackwardWarps* kWarp)
    backward_of_warp_kernel(std::int64_t rows, int cols, std::int64_t rows_of_block, HeadRows<const T> dy,
                            HeadRows<const T> in, HeadRows<const float> stats, const T* gamma, HeadRows<T> dx,
                            bool accumulates, float* partial) {
  constexpr int kSums = kCentred ? 2 : 1;
  using Columns = Pack<T, N>;
  __shared__ float of_block[kSums][kPacks * kWarp * N];
  const std::int64_t begin = blockIdx.x * rows_of_block;
  const std::int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  const float share = 1.0f / static_cast<float>(cols);
  const int first = static_cast<int>(threadIdx.x) * N;
  float sum[kSums][kPacks][N] = {};
  for (std::int64_t row = begin + threadIdx.y; row < end; row += kBackwardWarps) {
    const RowStats<kCentred> own(stats.row(row));
    const T *of_dy = dy.row(row), *of_x = in.row(row);
    T* to = dx.row(row);
    Columns d[kPacks] = {}, x[kPacks] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (const int col = first + p * kWarp * N; col < cols) {
        d[p] = *pack_at<const Columns>(of_dy + col);
        x[p] = *pack_at<const Columns>(of_x + col);
      }
    const float shift = -own.mean * own.scale;
    float sum_g = 0, sum_gx = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int col = first + p * kWarp * N;
      if (col >= cols) continue;
      float g[N];
      load(g, gamma + col);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float of_y = widened(d[p].at[n]), hat = fmaf(widened(x[p].at[n]), own.scale, shift), of_g = of_y * g[n];
        sum[0][p][n] += of_y * hat;
        if constexpr (kCentred) sum[1][p][n] += of_y;
        sum_g += of_g;
        sum_gx += of_g * hat;
      }
    }
    // dx = scale · (g − mean(g) − x̂ · mean(g∘x̂)), with the scale in every factor.
    const float mean_g = kCentred ? warp_sum(sum_g) * share * own.scale : 0.0f;
    const float mean_gx = warp_sum(sum_gx) * share * own.scale;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int col = first + p * kWarp * N;
      if (col >= cols) continue;
      float g[N], out[N] = {};
      load(g, gamma + col);
      if (accumulates) load(out, to + col);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float hat = fmaf(widened(x[p].at[n]), own.scale, shift);
        out[n] += fmaf(widened(d[p].at[n]) * g[n], own.scale, -fmaf(hat, mean_gx, mean_g));
      }
      store(to + col, out);
    }
  }
  for (unsigned warp = 0; warp < kBackwardWarps; ++warp) {
    if (threadIdx.y == warp)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
#pragma unroll
          for (int n = 0; n < N; ++n) {
            float& to = of_block[s][first + p * kWarp * N + n];
            to = warp == 0 ? sum[s][p][n] : to + sum[s][p][n];
          }
    __syncthreads();
  }
  for (int s = 0; s < kSums; ++s)
    for (int col = static_cast<int>(threadIdx.y * kWarp + threadIdx.x); col < cols; col += kBackwardWarps * kWarp)
      partial[(std::int64_t{blockIdx.x} * kSums + s) * cols + col] = of_block[s][col];
}

// Computes both gradients of rows that are too long for a warp. Thread t has the packs t, t + blockDim.x, … of columns,
// kPacks of them, of kRows rows at a time: their dy and x are read once, and the gradients of the weights add up in
// registers over all rows of the block. partial[block][sum][cols] as in column_sums.hpp. N · kPacks · blockDim.x is at
// least cols, which N divides.
template <int N, int kPacks, int kRows, bool kCentred, class T>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_of_block_kernel(std::int64_t rows, int cols, std::int64_t rows_of_block, HeadRows<const T> dy,
                             HeadRows<const T> in, HeadRows<const float> stats, const T* gamma, HeadRows<T> dx,
                             bool accumulates, float* partial) {
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

// The launch of a kernel that computes both gradients: blocks for as many rows as it handles at once, and the sums of
// its blocks.
template <bool kCentred, class T, class Kernel>
void launch_backward(Kernel kernel, dim3 block, std::int64_t rows_at_once, std::int64_t rows, std::int64_t cols,
                     std::int64_t heads, std::span<const exec::Operand> o, const Stream& stream) {
  constexpr int kSums = kCentred ? 2 : 1;
  const std::int64_t blocks = std::min({resident_blocks(stream, kernel, block.x * block.y),
                                        ceil_div(rows, 4 * rows_at_once), chunks_in_scratch(stream, cols, kSums)});
  const auto in = [&](std::size_t i) { return heads_of<const T>(o[i], heads); };
  launch(stream, {static_cast<unsigned>(blocks), 1, 1}, block, kernel, rows, static_cast<int>(cols),
         ceil_div(rows, blocks), in(0), in(1), heads_of<const float>(o[2], heads), static_cast<const T*>(o[3].data),
         heads_of<T>(o.back(), heads), o.back().mode == AccessMode::accumulate, static_cast<float*>(stream.scratch));
  SumOutputs<kSums> out;
  for (std::size_t s = 0; s < kSums; ++s) out.at[s] = static_cast<float*>(o[4 + s].data);
  add_partial_sums(stream, cols, blocks, out);
}

// Computes both gradients at once where rows are packs of N elements. Returns false where they are longer than
// registers hold.
template <int N, bool kCentred, class T>
bool run_backward(std::int64_t rows, std::int64_t cols, std::int64_t heads, std::span<const exec::Operand> o,
                  const Stream& stream) {
  bool is_run = false;
  // GPT-2's widths, in bf16: 768, 1,024, 1,280 and 1,600.
  const auto by_warp = [&]<int kPacks>(std::integral_constant<int, kPacks>) {
    if (is_run || cols > N * kPacks * kWarp) return;
    launch_backward<kCentred, T>(backward_of_warp_kernel<N, kPacks, kCentred, T>, {kWarp, kBackwardWarps, 1},
                                 kBackwardWarps, rows, cols, heads, o, stream);
    is_run = true;
  };
  const auto by_block = [&]<int kPacks, int kRows>(std::integral_constant<int, kPacks>,
                                                   std::integral_constant<int, kRows>) {
    if (is_run || cols > N * kPacks * std::int64_t{kBackwardThreads}) return;
    const unsigned threads = static_cast<unsigned>(ceil_div(cols, std::int64_t{N} * kPacks * kWarp)) * kWarp;
    launch_backward<kCentred, T>(backward_of_block_kernel<N, kPacks, kRows, kCentred, T>, {threads, 1, 1}, kRows, rows,
                                 cols, heads, o, stream);
    is_run = true;
  };
  by_warp(std::integral_constant<int, 3>{});
  by_warp(std::integral_constant<int, 4>{});
  by_warp(std::integral_constant<int, 5>{});
  by_warp(std::integral_constant<int, 7>{});
  by_block(std::integral_constant<int, 1>{}, std::integral_constant<int, 2>{});
  by_block(std::integral_constant<int, 2>{}, std::integral_constant<int, 1>{});
  return is_run;
}

}  // namespace stretto::cuda
