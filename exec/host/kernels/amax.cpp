#include <algorithm>
#include <cassert>
#include <cstdint>

#include "base/scaling.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/magnitude.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {

void run_kernel(const Amax& work, std::span<const Operand> operands) {
  const Operand &x = operands[0], &amax = operands[1];
  assert(operands.size() == 2 && has_shape(x, work.rows, work.cols) && amax.dtype == Dtype::f32);
  assert(elements_of(amax) == (work.hadamard ? 2 : 1) && (!work.hadamard || work.rows % kNvBlock == 0));
  float* row = thread_scratch<float>(2 * kNvBlock * work.cols);
  Magnitude plain, transformed;
  const std::int64_t strip = work.hadamard ? kNvBlock : 1;
  for (std::int64_t r = 0; r < work.rows; r += strip) {
    read_rows(x, r, strip, row);
    plain.add(row, strip * work.cols);
    if (!work.hadamard) continue;
    float* turned = row + kNvBlock * work.cols;
    hadamard_down_columns(row, work.cols, turned);
    transformed.add(turned, kNvBlock * work.cols);
  }
  data_of<float>(amax)[0] = plain.largest();
  if (work.hadamard) data_of<float>(amax)[1] = transformed.largest();
}

void run_kernel(const UpdateScale& work, std::span<const Operand> operands) {
  const Operand &amax = operands[0], &scale = operands.back();
  assert(operands.size() == (work.history > 0 ? 3u : 2u) && elements_of(amax) == work.elements);
  assert(elements_of(scale) == work.elements && amax.dtype == Dtype::f32 && scale.dtype == Dtype::f32);
  const float largest = work.format == Dtype::e5m2 ? E5m2::kMax : E4m3::kMax;
  float *amaxes = data_of<float>(amax), *scales = data_of<float>(scale);
  if (work.history == 0) {
    for (std::int64_t i = 0; i < work.elements; ++i) scales[i] = scale_of_amax(amaxes[i], largest);
    return;
  }
  const Operand& history = operands[1];
  assert(elements_of(history) == work.history * work.elements && history.dtype == Dtype::f32);
  for (std::int64_t i = 0; i < work.elements; ++i) {
    float* newest = data_of<float>(history) + i * work.history;
    std::copy_backward(newest, newest + work.history - 1, newest + work.history);
    float of = *newest = amaxes[i];
    amaxes[i] = 0;
    for (std::int64_t past = 1; past < work.history && !work.most_recent; ++past)
      of = larger_magnitude(of, newest[past]);
    scales[i] = delayed_scale(of, scales[i], largest, static_cast<int>(work.margin));
  }
}

}  // namespace stretto::host
