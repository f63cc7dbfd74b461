#pragma once
// LayerNorm and RMSNorm. A warp computes a row of a head, which it reads once: short rows stay in registers.
#include <vector>

#include "exec/cuda/kernels/column_sums.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/norm_backward.hpp"
#include "exec/cuda/kernels/norm_rows.hpp"

namespace stretto::cuda {

constexpr unsigned kRowsOfBlock = 4;

__device__ inline std::int64_t row_of_warp() { return std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y; }

// Lane l has the packs l, l + 32, … of columns: kPacks of them, which it keeps in registers, or where that is 0 any
// number, which it reads again for every sum.
template <int N, int kPacks, bool kCentred, class T>
__global__ void forward_kernel(std::int64_t rows, std::int64_t cols, float epsilon, HeadRows<const T> in,
                               const T* gamma, const T* beta, HeadRows<T> out, HeadRows<float> stats) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;  // a whole warp returns
  const T* x = in.row(row);
  const std::int64_t first = std::int64_t{threadIdx.x} * N, stride = kWarp * N;
  constexpr int kKept = kPacks > 0 ? kPacks : 1;
  Pack<T, N> kept[kKept];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (first + p * stride < cols) kept[p] = *pack_at<const Pack<T, N>>(x + first + p * stride);
  // Calls visit(column, its pack of x) for each pack of the lane.
  const auto for_each_pack = [&](const auto& visit) {
    float v[N];
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (first + p * stride >= cols) continue;
#pragma unroll
        for (int n = 0; n < N; ++n) v[n] = widened(kept[p].at[n]);
        visit(first + p * stride, v);
      }
    } else {
      for (std::int64_t col = first; col < cols; col += stride) {
        load(v, x + col);
        visit(col, v);
      }
    }
  };
  RowStats<kCentred> own;
  if constexpr (kCentred) {
    float sum = 0;
    for_each_pack([&](std::int64_t, const float(&v)[N]) {
#pragma unroll
      for (int n = 0; n < N; ++n) sum += v[n];
    });
    own.mean = warp_sum(sum) / static_cast<float>(cols);
  }
  float squares = 0;
  for_each_pack([&](std::int64_t, const float(&v)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (v[n] - own.mean) * (v[n] - own.mean);
  });
  own.scale = 1.0f / sqrt(warp_sum(squares) / static_cast<float>(cols) + epsilon);
  for_each_pack([&](std::int64_t col, const float(&v)[N]) {
    float g[N], b[N] = {}, y[N];
    load(g, gamma + col);
    if constexpr (kCentred) load(b, beta + col);
#pragma unroll
    for (int n = 0; n < N; ++n) y[n] = (v[n] - own.mean) * own.scale * g[n] + b[n];
    store(out.row(row) + col, y);
  });
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

template <int N, bool kCentred, class T>
void run(Pass pass, std::int64_t rows, std::int64_t cols, std::int64_t heads, float epsilon,
         std::span<const exec::Operand> o, const Stream& stream) {
  const auto in = [&](std::size_t i) { return heads_of<const T>(o[i], heads); };
  const auto vector = [&](std::size_t i) { return static_cast<const T*>(o[i].data); };
  const auto floats = [&](std::size_t i) { return static_cast<float*>(o[i].data); };
  const dim3 grid{static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)), 1, 1}, block{kWarp, kRowsOfBlock, 1};
  switch (pass) {
    case Pass::forward: {
      // Packs of a lane that registers keep.
      constexpr int few = N > 1 ? 4 : 0, more = N > 1 ? 8 : 0;
      const std::int64_t packs = ceil_div(cols, std::int64_t{N} * kWarp);
      return launch(stream, grid, block,
                    packs <= few    ? forward_kernel<N, few, kCentred, T>
                    : packs <= more ? forward_kernel<N, more, kCentred, T>
                                    : forward_kernel<N, 0, kCentred, T>,
                    rows, cols, epsilon, in(0), vector(1), kCentred ? vector(2) : nullptr,
                    heads_of<T>(o[kCentred ? 3 : 2], heads), heads_of<float>(o[kCentred ? 4 : 3], heads));
    }
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
      if constexpr (N > 1)
        if (run_backward<N, kCentred, T>(rows, cols, heads, o, stream)) return;
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

}  // namespace stretto::cuda
