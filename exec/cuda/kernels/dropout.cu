#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"

namespace stretto::cuda {
namespace {

// out = residual + dropout(in + bias); null where there is none. A thread has four columns, one draw.
template <class T>
__global__ void dropout_kernel(std::int64_t rows, std::int64_t cols, std::int64_t first, std::int64_t seq,
                               Rows<const T> residual, Rows<const T> in, const T* bias, DropoutMask mask, Rows<T> out) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4;
  if (col >= cols) return;
  const int count = cols - col < 4 ? static_cast<int>(cols - col) : 4;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const std::int64_t token = first + row;
    float factor[4];
    mask.factors(token / seq, token % seq, col, factor);
    for (int i = 0; i < count; ++i) {
      float x = widened(in.row(row)[col + i]);
      if (bias != nullptr) x += widened(bias[col + i]);
      x *= factor[i];
      if (residual.data != nullptr) x += widened(residual.row(row)[col + i]);
      out.row(row)[col + i] = rounded<T>(x);
    }
  }
}

}  // namespace

void run_kernel(const Dropout& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const bool is_forward = work.pass == Pass::forward;
  const exec::Operand* next = operands.data();
  const exec::Operand* residual = is_forward && work.residual ? next++ : nullptr;
  const exec::Operand& in = *next++;
  const exec::Operand* bias = is_forward && work.bias ? next++ : nullptr;
  const DropoutMask mask{static_cast<const std::int32_t*>(next++->data), static_cast<std::uint32_t>(work.site),
                         static_cast<std::uint64_t>(std::ceil(work.probability * 4294967296.0)),
                         static_cast<float>(1 / (1 - work.probability))};
  const Tiling t = tile(work.rows, ceil_div(work.cols, 4));
  with_device_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, t.grid, t.block, dropout_kernel<T>, work.rows, work.cols, work.first_row.value(), work.seq,
           residual ? rows_of<const T>(*residual) : Rows<const T>{}, rows_of<const T>(in),
           bias ? static_cast<const T*>(bias->data) : nullptr, mask, rows_of<T>(*next));
  });
}

}  // namespace stretto::cuda
