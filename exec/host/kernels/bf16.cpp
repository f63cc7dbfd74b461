#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "base/bf16.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

void widen(const Operand& from, float* to) {
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const Bf16* values = row_of<Bf16>(from, row);
    for (std::int64_t i = 0; i < from.cols; ++i) to[row * from.cols + i] = to_float(values[i]);
  }
}

void narrow(const float* from, const Operand& to) {
  for (std::int64_t row = 0; row < to.rows; ++row) {
    Bf16* values = row_of<Bf16>(to, row);
    for (std::int64_t i = 0; i < to.cols; ++i) values[i] = to_bf16(from[row * to.cols + i]);
  }
}

}  // namespace

bool computes_in_bf16(std::span<const Operand> operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& o) { return o.dtype == Dtype::bf16; });
}

void run_in_f32(const Work& work, std::span<const Operand> operands) {
  // The buffers are not thread_scratch, which kernels use while they run.
  thread_local std::vector<float> wide;
  std::int64_t total = 0;
  for (const Operand& operand : operands)
    if (operand.dtype == Dtype::bf16) total += elements_of(operand);
  if (std::int64_t(wide.size()) < total) wide.resize(static_cast<std::size_t>(total));
  std::vector<Operand> widened(operands.begin(), operands.end());
  float* next = wide.data();
  for (Operand& operand : widened) {
    if (operand.dtype != Dtype::bf16) continue;
    if (operand.mode != AccessMode::write) widen(operand, next);
    operand.data = next;
    operand.dtype = Dtype::f32;
    operand.ld = operand.cols;
    next += elements_of(operand);
  }
  run_work(work, widened);
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].dtype == Dtype::bf16 && operands[i].mode != AccessMode::read)
      narrow(data_of<float>(widened[i]), operands[i]);
}

}  // namespace stretto::host
