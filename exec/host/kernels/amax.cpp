#include <algorithm>
#include <cassert>
#include <cstdint>

#include "base/scaling.hpp"
#include "exec/code_groups.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/magnitude.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/scratch.hpp"

namespace stretto::host {
namespace {

// The largest magnitudes of rows [first, first + rows) of x, and of what Hadamard transforms make of them and of zeros
// after them.
struct Amaxes {
  Magnitude plain, transformed;

  void add(const Operand& x, std::int64_t first, std::int64_t rows, bool hadamard) {
    const std::int64_t strip = hadamard ? kNvBlock : 1;
    float* row = thread_scratch<float>(2 * kNvBlock * x.cols);
    for (std::int64_t r = 0; r < rows; r += strip) {
      const std::int64_t own = std::min(strip, rows - r);
      read_rows(x, first + r, own, row);
      plain.add(row, own * x.cols);
      if (!hadamard) continue;
      std::fill(row + own * x.cols, row + kNvBlock * x.cols, 0.0f);
      float* turned = row + kNvBlock * x.cols;
      hadamard_down_columns(row, x.cols, turned);
      transformed.add(turned, kNvBlock * x.cols);
    }
  }
};

}  // namespace

void run_kernel(const Amax& work, std::span<const Operand> operands) {
  const Operand& x = operands[0];
  float* amax = data_of<float>(operands.back());
  const std::int64_t count = std::max<std::int64_t>(work.groups, 1);
  assert(operands.size() == (work.has_offsets() ? 3u : 2u) && has_shape(x, work.matrix_rows(), work.cols));
  assert(elements_of(operands.back()) == count * (work.hadamard ? 2 : 1) && operands.back().dtype == Dtype::f32);
  const auto put = [&](std::int64_t group, std::int64_t first, std::int64_t rows) {
    Amaxes amaxes;
    amaxes.add(x, first, rows, work.hadamard);
    amax[group] = amaxes.plain.largest();
    if (work.hadamard) amax[count + group] = amaxes.transformed.largest();
  };
  if (work.groups == 0) return put(0, 0, work.rows);
  const exec::RowGroups groups(work.equal ? nullptr : &operands[1],
                               {work.groups, work.rows, work.capacity, work.equal});
  groups.for_each(1, [&](std::int64_t group, std::int64_t first, std::int64_t rows, std::int64_t, std::int64_t) {
    put(group, first, rows);
  });
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
