#pragma once
#include <algorithm>
#include <cstdint>

#include "exec/host/kernels/row.hpp"

namespace stretto::host {

// Common parts of LayerNorm and RMSNorm.

constexpr double kNormEpsilon = 1e-5;  // of GPT-2, Llama 2 and Llama 3

struct RowRange {
  std::int64_t begin = 0, end = 0;
};

// Rows whose sums are added in one sweep over the weights' gradients: enough that loading and storing those does not
// dominate.
constexpr std::int64_t kNormRowsAtOnce = 4;

// fn(RowRange) for so many rows at a time, in order.
template <class Fn>
void for_few_rows(std::int64_t rows, Fn fn) {
  for (std::int64_t row = 0; row < rows; row += kNormRowsAtOnce) fn({row, std::min(row + kNormRowsAtOnce, rows)});
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
