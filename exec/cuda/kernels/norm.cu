// LayerNorm and RMSNorm: a warp a row, which reads it from memory once and then from the cache.
#include "exec/cuda/kernels/column_sums.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr unsigned kRowsOfBlock = 4;

// stats[rows, 2] (mean, reciprocal standard deviation) when `kCentred`, which LayerNorm is; else [rows, 1].
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

__device__ std::int64_t row_of_warp() { return std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y; }

template <int N, bool kCentred, class T>
__global__ void forward_kernel(std::int64_t rows, std::int64_t cols, Rows<const T> in, const T* gamma, const T* beta,
                               Rows<T> out, Rows<float> stats) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;  // a whole warp
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
  own.scale = 1.0f / sqrt(warp_sum(squares) / static_cast<float>(cols) + kEpsilon);
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
__global__ void dgrad_kernel(std::int64_t rows, std::int64_t cols, Rows<const T> dy, Rows<const T> in,
                             Rows<const float> stats, const T* gamma, Rows<T> dx, bool accumulates) {
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

// dgamma: dy ∘ x̂; dbeta, when centred: dy.
template <int N, bool kCentred, class T>
struct WeightGradient {
  Rows<const T> dy, x;
  Rows<const float> stats;
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
void run(Pass pass, std::int64_t rows, std::int64_t cols, std::span<const exec::Operand> o, const Stream& stream) {
  const auto in = [&](std::size_t i) { return rows_of<const T>(o[i]); };
  const auto vector = [&](std::size_t i) { return static_cast<const T*>(o[i].data); };
  const auto floats = [&](std::size_t i) { return static_cast<float*>(o[i].data); };
  const dim3 grid{static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)), 1, 1}, block{kWarp, kRowsOfBlock, 1};
  switch (pass) {
    case Pass::forward:
      return launch(stream, grid, block, forward_kernel<N, kCentred, T>, rows, cols, in(0), vector(1),
                    kCentred ? vector(2) : nullptr, rows_of<T>(o[kCentred ? 3 : 2]),
                    rows_of<float>(o[kCentred ? 4 : 3]));
    case Pass::dgrad:
      return launch(stream, grid, block, dgrad_kernel<N, kCentred, T>, rows, cols, in(0), in(1),
                    rows_of<const float>(o[2]), vector(3), rows_of<T>(o[4]), o[4].mode == AccessMode::accumulate);
    case Pass::wgrad: {
      // Half of what a pack can be: there are two sums.
      constexpr int n = N > 1 ? N / 2 : 1;
      const WeightGradient<n, kCentred, T> addends{in(0), in(1), rows_of<const float>(o[2])};
      if constexpr (kCentred)
        return add_column_sums<n, 2>(stream, rows, cols, {{floats(3), floats(4)}}, addends);
      else
        return add_column_sums<n, 1>(stream, rows, cols, {{floats(3)}}, addends);
    }
  }
}

template <bool kCentred>
void run(Pass pass, std::int64_t rows, std::int64_t cols, std::span<const exec::Operand> operands,
         const Stream& stream) {
  with_device_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int widest = 16 / static_cast<int>(sizeof(T));
    bool packs = cols % widest == 0;
    for (const exec::Operand& operand : operands)
      if (operand.dtype == operands[0].dtype && operand.cols == cols)
        packs = packs && is_packable(rows_of<const T>(operand), widest);
    packs ? run<widest, kCentred, T>(pass, rows, cols, operands, stream)
          : run<1, kCentred, T>(pass, rows, cols, operands, stream);
  });
}

}  // namespace

void run_layernorm(const LayerNorm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run<true>(work.pass, work.rows, work.cols, operands, stream);
}
void run_rmsnorm(const RmsNorm& work, std::span<const exec::Operand> operands, const Stream& stream) {
  run<false>(work.pass, work.rows, work.cols, operands, stream);
}

}  // namespace stretto::cuda
