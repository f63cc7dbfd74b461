#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {

// Common code of LayerNorm and RMSNorm. Operands are those of model/ops/norm.hpp; rows are [begin, end) of an
// operand's rows, columns the elements of one head. Pure functions over memory of the caller; thread-safe for disjoint
// rows.

struct RowRange {
  std::int64_t begin = 0, end = 0;
};

// Rows whose sums are added in one sweep over the weights' gradients: enough that loading and storing these does not
// dominate.
constexpr std::int64_t kNormRowsAtOnce = 4;

// Calls fn(RowRange) for kNormRowsAtOnce rows at a time, in order.
template <class Fn>
void for_few_rows(std::int64_t rows, Fn fn) {
  for (std::int64_t row = 0; row < rows; row += kNormRowsAtOnce) fn({row, std::min(row + kNormRowsAtOnce, rows)});
}

// Calls fn(operands) for each head of a norm: operands that are not weights are cut to the head's columns.
template <class Norm, class Fn>
void for_heads(const Norm& work, std::span<const Operand> operands, Fn fn) {
  if (work.heads == 1) return fn(operands);
  const bool is_forward = work.pass == Pass::forward;
  const std::size_t first_weight = is_forward ? 1 : 3, end_weight = operands.size() - (is_forward                 ? 2
                                                                                       : work.pass == Pass::wgrad ? 0
                                                                                                                  : 1);
  for (std::int64_t head = 0; head < work.heads; ++head) {
    std::vector<Operand> own(operands.begin(), operands.end());
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i >= first_weight && i < end_weight) continue;
      own[i].cols /= work.heads;
      own[i].data = static_cast<std::byte*>(own[i].data) + head * own[i].cols * bytes_of(own[i].dtype);
    }
    fn(own);
  }
}

// to[i…] ← (accumulate: to[i…] +) gradient(i, count), for a row of n elements.
template <class T, class Fn>
void write_gradient(T* to, std::int64_t n, bool accumulate, Fn gradient) {
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) {
    if (accumulate) {
      store<T>(to + i, count, load(to + i, count) + gradient(i, count));
    } else {
      store<T>(to + i, count, gradient(i, count));
    }
  });
}

}  // namespace stretto::host
