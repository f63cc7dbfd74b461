#pragma once
// Elementwise kernels: (out[0], …)(row, col) = fn((in[0], …)(row, col)). Each thread handles one pack of columns in the
// rows of its block, so that no index needs a division. Matrices are borrowed device memory; a launch is asynchronous
// on its stream, so they must stay until the stream has passed it.
#include <array>
#include <span>

#include "exec/cuda/kernels/launch.hpp"
#include "exec/operand.hpp"

namespace stretto::cuda {

// Operands of one kernel: all [rows, cols], each with its own leading dimension in elements. Passed to kernels by
// value.
template <class T, int Count>
struct Matrices {
  Rows<T> at[Count];
};

// `packs`: columns / N. Every row of every operand is aligned to N elements.
template <int N, int In, int Out, class T, class U, class Fn>
__global__ void map_kernel(std::int64_t rows, std::int64_t packs, Matrices<const T, In> in, Matrices<U, Out> out,
                           Fn fn) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    float x[In][N], y[Out][N];
#pragma unroll
    for (int i = 0; i < In; ++i) load(x[i], in.at[i].row(row) + pack * N);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float of[In], to[Out];
#pragma unroll
      for (int i = 0; i < In; ++i) of[i] = x[i][n];
      fn(of, to);
#pragma unroll
      for (int o = 0; o < Out; ++o) y[o][n] = to[o];
    }
#pragma unroll
    for (int o = 0; o < Out; ++o) store(out.at[o].row(row) + pack * N, y[o]);
  }
}

// Returns whether every row is aligned to n elements, so that a Pack of n can be read at any multiple of n.
template <class T>
bool is_packable(const Rows<T>& rows, int n) {
  return reinterpret_cast<std::uintptr_t>(rows.data) % (sizeof(T) * static_cast<std::size_t>(n)) == 0 &&
         rows.ld % n == 0;
}

// Launches fn(const float (&in)[In], float (&out)[Out]), an immutable __device__ function object, on every element.
// Computes in f32, whatever T and U, and rounds once. An output may be the same memory as an input. Reads 16 bytes at
// once if alignment and `cols` allow it, single elements otherwise; contiguous operands are treated as one long row.
// Throws Error(runtime) when the launch is refused.
template <int In, int Out, class T, class U, class Fn>
void map(const Stream& stream, std::int64_t rows, std::int64_t cols, Matrices<const T, In> in, Matrices<U, Out> out,
         Fn fn) {
  constexpr int widest = 16 / static_cast<int>(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U));
  bool packs = cols % widest == 0, is_one_row = true;
  for (const Rows<const T>& m : in.at) {
    packs = packs && is_packable(m, widest);
    is_one_row = is_one_row && m.ld == cols;
  }
  for (const Rows<U>& m : out.at) {
    packs = packs && is_packable(m, widest);
    is_one_row = is_one_row && m.ld == cols;
  }
  if (is_one_row) {
    cols *= rows;
    rows = 1;
  }
  if (packs) {
    const Tiling t = tile(rows, cols / widest);
    launch(stream, t.grid, t.block, map_kernel<widest, In, Out, T, U, Fn>, rows, cols / widest, in, out, fn);
  } else {
    const Tiling t = tile(rows, cols);
    launch(stream, t.grid, t.block, map_kernel<1, In, Out, T, U, Fn>, rows, cols, in, out, fn);
  }
}

// Return the rows of an operand; shared_row() is a vector that all rows share, with ld 0.
template <class T>
Rows<T> rows_of(const exec::Operand& operand) {
  return {static_cast<T*>(operand.data), operand.rows == 1 ? operand.cols : operand.ld};
}
template <class T>
Rows<const T> shared_row(const exec::Operand& operand) {
  return {static_cast<const T*>(operand.data), 0};
}

// Calls fn(T{}) with the element type of an operand: f32 or bf16. Throws Error(runtime) for any other type.
template <class Fn>
void with_device_type(Dtype dtype, Fn fn) {
  if (dtype == Dtype::f32) return fn(float{});
  if (dtype == Dtype::bf16) return fn(bf16{});
  throw runtime_failure("kernels of the device are for f32 and bf16, not " + std::string(name_of(dtype)));
}

}  // namespace stretto::cuda
