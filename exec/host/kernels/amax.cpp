#include <algorithm>
#include <cassert>
#include <cstdint>

#include "base/scaling.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/magnitude.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row_groups.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {

namespace {

void amaxes_of_groups(const Amax& work, std::span<const Operand> operands) {
  const Operand &x = operands[0], &amax = operands.back();
  assert(operands.size() == (work.equal ? 2u : 3u) && has_shape(x, work.matrix_rows(), work.cols));
  assert(elements_of(amax) == work.groups && amax.dtype == Dtype::f32);
  const RowGroups groups(work.equal ? nullptr : &operands[1], {work.groups, work.rows, work.capacity, work.equal});
  float* row = thread_scratch<float>(work.cols);
  groups.for_each(1, [&](std::int64_t group, std::int64_t first, std::int64_t rows, std::int64_t, std::int64_t) {
    Magnitude magnitude;
    for (std::int64_t r = first; r < first + rows; ++r) {
      read_rows(x, r, 1, row);
      magnitude.add(row, work.cols);
    }
    data_of<float>(amax)[group] = magnitude.largest();
  });
}

}  // namespace

void run_kernel(const Amax& work, std::span<const Operand> operands) {
  if (work.groups > 0) return amaxes_of_groups(work, operands);
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
