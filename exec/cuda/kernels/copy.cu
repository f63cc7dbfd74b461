#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"

namespace stretto::cuda {
namespace {

struct Same {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = in[0]; }
};

// `packs`: columns / N.
template <int N, class T>
__global__ void fill_kernel(std::int64_t rows, std::int64_t packs, Rows<T> to, T value) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  Pack<T, N> values;
#pragma unroll
  for (int n = 0; n < N; ++n) values.at[n] = value;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    *pack_at<Pack<T, N>>(to.row(row) + pack * N) = values;
}

// The parts follow one another, `elements` each; they are added in order.
template <class From, class T>
__global__ void local_reduce_kernel(std::int64_t rows, std::int64_t cols, int parts, std::int64_t elements,
                                    const From* from, Rows<T> to) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const From* first = from + row * cols + col;
    float sum = widened(*first);
    for (int part = 1; part < parts; ++part) sum += widened(first[part * elements]);
    to.row(row)[col] = rounded<T>(sum);
  }
}

__global__ void copy_codes_kernel(std::int64_t rows, std::int64_t cols, Rows<const unsigned char> from,
                                  Rows<unsigned char> to) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    to.row(row)[col] = from.row(row)[col];
}

template <class T>
void fill(const exec::Operand& operand, T value, const Stream& stream) {
  constexpr int widest = 16 / static_cast<int>(sizeof(T));
  const Rows<T> to = rows_of<T>(operand);
  std::int64_t rows = operand.rows, cols = operand.cols;
  if (to.ld == cols) {
    cols *= rows;
    rows = 1;
  }
  const bool packs = cols % widest == 0 && is_packable(Rows<const T>{to.data, rows == 1 ? 0 : to.ld}, widest);
  const std::int64_t across = packs ? cols / widest : cols;
  const Tiling t = tile(rows, across);
  launch(stream, t.grid, t.block, packs ? fill_kernel<widest, T> : fill_kernel<1, T>, rows, across, to, value);
}

}  // namespace

void run_kernel(const Fill& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const exec::Operand& to = operands[0];
  if (to.dtype == Dtype::f64) return fill(to, work.value, stream);
  if (to.dtype == Dtype::i32) return fill(to, static_cast<std::int32_t>(work.value), stream);
  with_device_type(to.dtype,
                   [&](auto type) { fill(to, rounded<decltype(type)>(static_cast<float>(work.value)), stream); });
}

void run_kernel(const Cast&, std::span<const exec::Operand> operands, const Stream& stream) {
  const exec::Operand& from = operands[0];
  if (is_code(from.dtype) && from.dtype == operands[1].dtype) {  // a mode may cut a gather of codes
    const Tiling t = tile(from.rows, from.cols);
    return launch(stream, t.grid, t.block, copy_codes_kernel, from.rows, from.cols, rows_of<const unsigned char>(from),
                  rows_of<unsigned char>(operands[1]));
  }
  with_device_type(from.dtype, [&](auto in) {
    with_device_type(operands[1].dtype, [&](auto out) {
      using T = decltype(in);
      using U = decltype(out);
      map<1, 1, T, U>(stream, from.rows, from.cols, {{rows_of<const T>(from)}}, {{rows_of<U>(operands[1])}}, Same{});
    });
  });
}

void run_kernel(const LocalReduce& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const exec::Operand& to = operands[1];
  const Tiling t = tile(to.rows, to.cols);
  with_device_type(operands[0].dtype, [&](auto in) {
    with_device_type(to.dtype, [&](auto out) {
      using From = decltype(in);
      using T = decltype(out);
      launch(stream, t.grid, t.block, local_reduce_kernel<From, T>, to.rows, to.cols, static_cast<int>(work.parts),
             work.elements, static_cast<const From*>(operands[0].data), rows_of<T>(to));
    });
  });
}

}  // namespace stretto::cuda
