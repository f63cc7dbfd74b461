#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/norm.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

template <class T>
void forward(const RmsNorm& work, std::span<const Operand> operands) {
  const T* gamma = data_of<T>(operands[1]);
  const T inverse_cols = T(1) / static_cast<T>(work.cols);
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* x = row_of<T>(operands[0], row);
    T* y = row_of<T>(operands[2], row);
    Simd<T> squares = Simd<T>::Zero();
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) { squares += load(x + i, count).square(); });
    const T rrms = T(1) / std::sqrt(squares.sum() * inverse_cols + static_cast<T>(work.epsilon));
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      store<T>(y + i, count, load(x + i, count) * rrms * load(gamma + i, count));
    });
    *row_of<T>(operands[3], row) = rrms;
  }
}

// With g = dy∘gamma and r the row's reciprocal rms: dx = r · (g − x · r² · mean(g∘x)).
template <class T>
void dgrad(const RmsNorm& work, std::span<const Operand> operands, const Operand& to, RowRange rows) {
  const T* gamma = data_of<T>(operands[3]);
  const bool accumulate = to.mode == AccessMode::accumulate;
  const T inverse_cols = T(1) / static_cast<T>(work.cols);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* dy = row_of<T>(operands[0], row);
    const T* x = row_of<T>(operands[1], row);
    T* dx = row_of<T>(to, row);
    const T rrms = *row_of<T>(operands[2], row);
    Simd<T> sum = Simd<T>::Zero();
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      sum += load(dy + i, count) * load(gamma + i, count) * load(x + i, count);
    });
    const T of_x = sum.sum() * inverse_cols * rrms * rrms;
    const auto gradient = [&](std::int64_t i, std::int64_t count) -> Simd<T> {
      return rrms * (load(dy + i, count) * load(gamma + i, count) - load(x + i, count) * of_x);
    };
    write_gradient(dx, work.cols, accumulate, gradient);
  }
}

template <class T>
void wgrad(const RmsNorm& work, std::span<const Operand> operands, T* dgamma, RowRange rows) {
  for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
    Simd<T> sum = load(dgamma + i, count);
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      sum += load(row_of<T>(operands[0], row) + i, count) *
             (load(row_of<T>(operands[1], row) + i, count) * *row_of<T>(operands[2], row));
    store<T>(dgamma + i, count, sum);
  });
}

void run_head(const RmsNorm& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.pass == Pass::backward ? 6u : work.pass == Pass::dgrad ? 5u : 4u));
  assert(have_one_dtype(operands));
  const auto is_matrix = [&](std::size_t index) { return has_shape(operands[index], work.rows, work.cols); };
  const auto is_vector = [&](std::size_t index) { return elements_of(operands[index]) == work.cols; };
  const auto is_stats = [&](std::size_t index) { return has_shape(operands[index], work.rows, 1); };
  static_cast<void>(is_matrix), static_cast<void>(is_vector), static_cast<void>(is_stats);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    switch (work.pass) {
      case Pass::forward:
        assert(is_matrix(0) && is_vector(1) && is_matrix(2) && is_stats(3));
        return forward<T>(work, operands);
      case Pass::dgrad:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3) && is_matrix(4));
        return dgrad<T>(work, operands, operands[4], {0, work.rows});
      case Pass::wgrad:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3));
        return for_few_rows(work.rows, [&](RowRange rows) { wgrad(work, operands, data_of<T>(operands[3]), rows); });
      case Pass::backward:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3) && is_vector(4) && is_matrix(5));
        return for_few_rows(work.rows, [&](RowRange rows) {
          wgrad(work, operands, data_of<T>(operands[4]), rows);
          dgrad<T>(work, operands, operands[5], rows);
        });
    }
  });
}

}  // namespace

void run_kernel(const RmsNorm& work, std::span<const Operand> operands) {
  for_heads(work, operands, [&](std::span<const Operand> own) { run_head(work, own); });
}

}  // namespace stretto::host
