#include <cmath>

#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/philox.hpp"
#include "exec/cuda/kernels/positions.hpp"

namespace stretto::cuda {
namespace {

// The mask that forward keeps, which the gradient reads and does not draw again; null where none is kept.
struct KeptMask {
  std::int32_t* data;
  std::int64_t ld;
  bool is_read;
};

// The place of the rank's rows within a sample's.
struct Place {
  std::int64_t first;
  Positions positions;
  std::int64_t before;
};

// out = residual + dropout(in + bias); residual and bias may be null. Each thread has four columns: one draw, one word
// of the mask.
template <class T>
__global__ void dropout_kernel(std::int64_t rows, std::int64_t cols, Place place, Rows<const T> residual,
                               Rows<const T> in, const T* bias, DropoutMask mask, KeptMask kept, Rows<T> out) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4;
  if (col >= cols) return;
  const int count = cols - col < 4 ? static_cast<int>(cols - col) : 4;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const std::int64_t token = place.first + row;
    float factor[4];
    if (kept.is_read) {
      const auto word = static_cast<std::uint32_t>(kept.data[row * kept.ld + col / 4]);
      for (int i = 0; i < 4; ++i) factor[i] = (word >> (8 * i) & 0xffu) != 0 ? mask.scale : 0.0f;
    } else {
      mask.factors(place.positions.sample(token), place.before + place.positions.of(token), col, factor);
    }
    if (kept.data != nullptr && !kept.is_read) {
      std::uint32_t word = 0;
      for (int i = 0; i < count; ++i) word |= (factor[i] != 0.0f ? 1u : 0u) << (8 * i);
      kept.data[row * kept.ld + col / 4] = static_cast<std::int32_t>(word);
    }
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
  const bool reads_mask = !is_forward && work.keeps_mask;
  const exec::Operand& key = *next++;
  const exec::Operand& out = *next++;
  const exec::Operand* word = reads_mask ? &key : work.keeps_mask ? next : nullptr;
  const KeptMask kept{word ? static_cast<std::int32_t*>(word->data) : nullptr,
                      word ? (word->rows == 1 ? word->cols : word->ld) : 0, reads_mask};
  const DropoutMask mask{static_cast<const std::int32_t*>(key.data), static_cast<std::uint32_t>(work.site),
                         static_cast<std::uint64_t>(std::ceil(work.probability * 4294967296.0)),
                         static_cast<float>(1 / (1 - work.probability))};
  const Tiling t = tile(work.rows, ceil_div(work.cols, 4));
  with_device_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    const Place place{work.first_row.value(), Positions(work.parts, work.seq), work.rows_before.value()};
    launch(stream, t.grid, t.block, dropout_kernel<T>, work.rows, work.cols, place,
           residual ? rows_of<const T>(*residual) : Rows<const T>{}, rows_of<const T>(in),
           bias ? static_cast<const T*>(bias->data) : nullptr, mask, kept, rows_of<T>(out));
  });
}

}  // namespace stretto::cuda
