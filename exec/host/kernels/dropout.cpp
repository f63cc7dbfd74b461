#include <cassert>
#include <cstdint>

#include "exec/host/kernels/dropout_mask.hpp"
#include "exec/host/kernels/families.hpp"

namespace stretto::host {
namespace {

template <class T>
void dropout(const Dropout& work, std::span<const Operand> operands) {
  const Operand* next = operands.data();
  const Operand* residual = work.pass == Pass::forward && work.residual ? next++ : nullptr;
  const Operand& in = *next++;
  const T* bias = work.pass == Pass::forward && work.bias ? data_of<T>(*next++) : nullptr;
  const DropoutMask mask(*next++, work.probability, work.site);
  const Operand& out = *next;
  const std::int64_t first = work.first_row.value();
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const std::int64_t token = first + row;
    const T* from = row_of<T>(in, row);
    const T* add = residual ? row_of<T>(*residual, row) : nullptr;
    T* to = row_of<T>(out, row);
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      Simd<T> x = load(from + i, count);
      if (bias) x += load(bias + i, count);
      x *= mask.factors<T>(token / work.seq, token % work.seq, i);
      if (add) x += load(add + i, count);
      store<T>(to + i, count, x);
    });
  }
}

}  // namespace

void run_kernel(const Dropout& work, std::span<const Operand> operands) {
  const bool is_forward = work.pass == Pass::forward;
  assert(operands.size() == 3u + (is_forward && work.residual) + (is_forward && work.bias));
  assert(has_shape(operands[0], work.rows, work.cols) && has_shape(operands.back(), work.rows, work.cols));
  static_cast<void>(is_forward);
  with_compute_type(operands[0].dtype, [&](auto type) { dropout<decltype(type)>(work, operands); });
}

}  // namespace stretto::host
