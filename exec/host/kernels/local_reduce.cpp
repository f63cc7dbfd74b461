#include <cassert>
#include <type_traits>

#include "base/bf16.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

// A stretch of the sum stays in registers while the parts stream past.
template <class T>
void reduce(const LocalReduce& work, const Operand& parts, const Operand& sum) {
  const T* from = static_cast<const T*>(parts.data);
  for (std::int64_t row = 0; row < sum.rows; ++row) {
    T* to = row_of<T>(sum, row);
    const T* first = from + row * sum.cols;
    for_simd<T>(sum.cols, [&](std::int64_t i, std::int64_t count) {
      Simd<T> total = load(first + i, count);
      for (std::int64_t part = 1; part < work.parts; ++part) total += load(first + part * work.elements + i, count);
      store<T>(to + i, count, total);
    });
  }
}

// Parts in bf16 are summed in f32, and rounded once where the sum is bf16 too.
template <class T>
void reduce_bf16(const LocalReduce& work, const Operand& parts, const Operand& sum) {
  const Bf16* from = data_of<Bf16>(parts);
  for (std::int64_t row = 0; row < sum.rows; ++row) {
    T* to = row_of<T>(sum, row);
    const Bf16* first = from + row * sum.cols;
    for (std::int64_t i = 0; i < sum.cols; ++i) {
      float total = to_float(first[i]);
      for (std::int64_t part = 1; part < work.parts; ++part) total += to_float(first[part * work.elements + i]);
      if constexpr (std::is_same_v<T, Bf16>)
        to[i] = to_bf16(total);
      else
        to[i] = static_cast<T>(total);
    }
  }
}

}  // namespace

void run_kernel(const LocalReduce& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && elements_of(operands[0]) == work.parts * work.elements);
  assert(elements_of(operands[1]) == work.elements);
  const Operand &parts = operands[0], &sum = operands[1];
  if (parts.dtype == Dtype::bf16) {
    assert(is_contiguous(parts));
    if (sum.dtype == Dtype::bf16) return reduce_bf16<Bf16>(work, parts, sum);
    return with_compute_type(sum.dtype, [&](auto type) { reduce_bf16<decltype(type)>(work, parts, sum); });
  }
  assert(sum.dtype == parts.dtype);
  with_compute_type(parts.dtype, [&](auto type) { reduce<decltype(type)>(work, parts, sum); });
}

}  // namespace stretto::host
