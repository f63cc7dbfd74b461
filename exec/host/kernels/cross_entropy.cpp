#include <cassert>
#include <cmath>
#include <cstdint>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

constexpr const char* kWhat = "cross-entropy: target";

template <class T>
double sum_nll(const CrossEntropy& work, const Operand& logits, const Operand& targets) {
  double nll = 0;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    T* x = row_of<T>(logits, row);
    const std::int32_t target = index_at(targets, row, work.vocab, kWhat);
    const T top = row_max(x, work.vocab);
    const double shifted = static_cast<double>(x[target]) - static_cast<double>(top);
    const T sum = row_exp(x, work.vocab, top);
    nll += std::log(static_cast<double>(sum)) - shifted;
    row_scale(x, work.vocab, static_cast<T>(work.scale) / sum);
    x[target] -= static_cast<T>(work.scale);
  }
  return nll;
}

}  // namespace

void run_cross_entropy(const CrossEntropy& work, std::span<const Operand> operands) {
  assert(operands.size() == 3);
  const Operand& logits = operands[0];
  const Operand& targets = operands[1];
  const Operand& loss = operands[2];
  assert(has_shape(logits, work.rows, work.vocab));
  assert(targets.dtype == Dtype::i32 && has_shape(targets, work.rows, 1));
  assert(loss.dtype == Dtype::f64 && elements_of(loss) == 1);
  for (std::int64_t row = 0; row < work.rows; ++row) index_at(targets, row, work.vocab, kWhat);
  with_compute_type(logits.dtype, [&](auto type) {
    *data_of<double>(loss) += work.scale * sum_nll<decltype(type)>(work, logits, targets);
  });
}

}  // namespace stretto::host
