// Factors of rows: the activation of experts times the probability of a row, and the gate of a shared expert.
#include "exec/cuda/kernels/activations.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/report.hpp"

namespace stretto::cuda {
namespace {

constexpr unsigned kRowsOfBlock = 4;  // a warp each

// The rows that there are: `count`, or where data says how many the last of the offsets.
struct RowsHere {
  std::int64_t count;
  const std::int32_t* last;  // null: `count`
  RowsHere(const WeightedActivation& work, const exec::Operand& offsets)
      : count(work.matrix_rows()),
        last(work.capacity > 0 ? static_cast<const std::int32_t*>(offsets.data) + work.groups : nullptr) {}
  __device__ std::int64_t get(const Report& report) const {
    if (last == nullptr) return count;
    const std::int64_t here = *last;
    if (here >= 0 && here <= count) return here;
    report(Fault::Kind::offset, here);
    return 0;
  }
};

template <int N, bool kGated, class T>
__global__ void weighted_kernel(RowsHere rows, std::int64_t cols, Rows<const T> x, Rows<const float> p, Rows<T> y,
                                Report report) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (col >= cols) return;
  const std::int64_t here = rows.get(report);
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < here;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const float weight = *p.row(row);
    float gate[N], up[N];
    load(gate, x.row(row) + col);
    if constexpr (kGated) load(up, x.row(row) + cols + col);
#pragma unroll
    for (int n = 0; n < N; ++n) gate[n] = weight * (kGated ? silu(gate[n]) * up[n] : gelu(gate[n]));
    store(y.row(row) + col, gate);
  }
}

template <int N, bool kGated, class T>
__global__ void weighted_gradient_kernel(RowsHere rows, std::int64_t cols, Rows<const T> dy, Rows<const T> x,
                                         Rows<const float> p, Rows<T> dx, Rows<float> dp, Report report) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y;
  if (row >= rows.get(report)) return;  // a whole warp returns
  const float weight = *p.row(row);
  float sum = 0;
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < cols; col += kWarp * N) {
    float d[N], gate[N], up[N] = {};
    load(d, dy.row(row) + col);
    load(gate, x.row(row) + col);
    if constexpr (kGated) load(up, x.row(row) + cols + col);
    float d_gate[N], d_up[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float of_act = d[n] * weight;
      if constexpr (kGated) {
        sum += d[n] * silu(gate[n]) * up[n];
        d_gate[n] = of_act * up[n] * silu_slope(gate[n]);
        d_up[n] = of_act * silu(gate[n]);
      } else {
        sum += d[n] * gelu(gate[n]);
        d_gate[n] = of_act * gelu_slope(gate[n]);
      }
    }
    store(dx.row(row) + col, d_gate);
    if constexpr (kGated) store(dx.row(row) + cols + col, d_up);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *dp.row(row) = sum;
}

template <int N, class T>
__global__ void gate_kernel(std::int64_t rows, std::int64_t cols, Rows<const T> x, Rows<const T> logit, Rows<T> y) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const float gate = sigmoid(widened(*logit.row(row)));
    float v[N];
    load(v, x.row(row) + col);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] *= gate;
    store(y.row(row) + col, v);
  }
}

template <int N, class T>
__global__ void gate_gradient_kernel(std::int64_t rows, std::int64_t cols, Rows<const T> dy, Rows<const T> x,
                                     Rows<const T> logit, Rows<T> dx, Rows<T> d_logit) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y;
  if (row >= rows) return;
  const float gate = sigmoid(widened(*logit.row(row)));
  float sum = 0;
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < cols; col += kWarp * N) {
    float d[N], v[N];
    load(d, dy.row(row) + col);
    load(v, x.row(row) + col);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum += d[n] * v[n];
      d[n] *= gate;
    }
    store(dx.row(row) + col, d);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *d_logit.row(row) = rounded<T>(sum * gate * (1.0f - gate));
}

// Calls fn(std::integral_constant<int, N>): as many elements at once as columns and alignment allow.
template <class T, class Fn>
void with_packs(std::int64_t cols, std::span<const exec::Operand> matrices, Fn fn) {
  constexpr int widest = 16 / static_cast<int>(sizeof(T));
  bool packs = cols % widest == 0;
  for (const exec::Operand& operand : matrices)
    if (operand.cols >= cols) packs = packs && is_packable(rows_of<const T>(operand), widest);
  if (packs)
    fn(std::integral_constant<int, widest>{});
  else
    fn(std::integral_constant<int, 1>{});
}

dim3 blocks_of_rows(std::int64_t rows) { return {static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)), 1, 1}; }

template <int N, bool kGated, class T>
void run_weighted(const WeightedActivation& work, const RowsHere& rows, std::span<const exec::Operand> o,
                  const Stream& stream) {
  if (work.pass == Pass::forward) {
    const Tiling t = tile(rows.count, work.cols / N);
    return launch(stream, t.grid, t.block, weighted_kernel<N, kGated, T>, rows, work.cols, rows_of<const T>(o[0]),
                  rows_of<const float>(o[1]), rows_of<T>(o[2]), Report(stream));
  }
  launch(stream, blocks_of_rows(rows.count), {kWarp, kRowsOfBlock, 1}, weighted_gradient_kernel<N, kGated, T>, rows,
         work.cols, rows_of<const T>(o[0]), rows_of<const T>(o[1]), rows_of<const float>(o[2]), rows_of<T>(o[3]),
         rows_of<float>(o[4]), Report(stream));
}

}  // namespace

void run_kernel(const WeightedActivation& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const RowsHere rows(work, operands.front());
  const std::span<const exec::Operand> o = operands.subspan(work.capacity > 0 ? 1 : 0);
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    // p and dp have one column and a type of their own.
    const exec::Operand matrices[] = {o[0], work.pass == Pass::forward ? o[2] : o[1],
                                      o[work.pass == Pass::forward ? 2 : 3]};
    with_packs<T>(work.cols, matrices, [&](auto width) {
      constexpr int N = decltype(width)::value;
      work.gated ? run_weighted<N, true, T>(work, rows, o, stream) : run_weighted<N, false, T>(work, rows, o, stream);
    });
  });
}

void run_kernel(const GateRows& work, std::span<const exec::Operand> o, const Stream& stream) {
  const bool is_forward = work.pass == Pass::forward;
  with_device_type(o[0].dtype, [&](auto type) {
    using T = decltype(type);
    const exec::Operand matrices[] = {o[0], is_forward ? o[2] : o[1], is_forward ? o[2] : o[3]};
    with_packs<T>(work.cols, matrices, [&](auto width) {
      constexpr int N = decltype(width)::value;
      if (is_forward) {
        const Tiling t = tile(work.rows, work.cols / N);
        return launch(stream, t.grid, t.block, gate_kernel<N, T>, work.rows, work.cols, rows_of<const T>(o[0]),
                      rows_of<const T>(o[1]), rows_of<T>(o[2]));
      }
      launch(stream, blocks_of_rows(work.rows), {kWarp, kRowsOfBlock, 1}, gate_gradient_kernel<N, T>, work.rows,
             work.cols, rows_of<const T>(o[0]), rows_of<const T>(o[1]), rows_of<const T>(o[2]), rows_of<T>(o[3]),
             rows_of<T>(o[4]));
    });
  });
}

}  // namespace stretto::cuda
