#include <cassert>

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

}  // namespace

void run_kernel(const LocalReduce& work, std::span<const Operand> operands) {
  assert(operands.size() == 2 && elements_of(operands[0]) == work.parts * work.elements);
  assert(elements_of(operands[1]) == work.elements);
  with_compute_type(operands[0].dtype, [&](auto type) { reduce<decltype(type)>(work, operands[0], operands[1]); });
}

}  // namespace stretto::host
