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
void forward(const LayerNorm& work, std::span<const Operand> operands) {
  const T* gamma = data_of<T>(operands[1]);
  const T* beta = data_of<T>(operands[2]);
  const T inverse_cols = T(1) / static_cast<T>(work.cols);
  for (std::int64_t row = 0; row < work.rows; ++row) {
    const T* x = row_of<T>(operands[0], row);
    T* y = row_of<T>(operands[3], row);
    T* stats = row_of<T>(operands[4], row);
    const T mean = row_sum(x, work.cols) * inverse_cols;
    Simd<T> squares = Simd<T>::Zero();
    for_simd<T>(work.cols,
                [&](std::int64_t i, std::int64_t count) { squares += (load(x + i, count, mean) - mean).square(); });
    const T rstd = T(1) / std::sqrt(squares.sum() * inverse_cols + static_cast<T>(work.epsilon));
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      store<T>(y + i, count, (load(x + i, count) - mean) * rstd * load(gamma + i, count) + load(beta + i, count));
    });
    stats[0] = mean;
    stats[1] = rstd;
  }
}

// With g = dy∘gamma and x̂ the normalised row: dx = rstd · (g − mean(g) − x̂ · mean(g∘x̂)).
template <class T>
void dgrad(const LayerNorm& work, std::span<const Operand> operands, const Operand& to, RowRange rows) {
  const T* gamma = data_of<T>(operands[3]);
  const bool accumulate = to.mode == AccessMode::accumulate;
  const T inverse_cols = T(1) / static_cast<T>(work.cols);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* dy = row_of<T>(operands[0], row);
    const T* x = row_of<T>(operands[1], row);
    T* dx = row_of<T>(to, row);
    const T mean = row_of<T>(operands[2], row)[0], rstd = row_of<T>(operands[2], row)[1];
    Simd<T> sum_g = Simd<T>::Zero(), sum_gx = Simd<T>::Zero();
    for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
      const Simd<T> g = load(dy + i, count) * load(gamma + i, count);
      sum_g += g;
      sum_gx += g * (load(x + i, count) - mean);
    });
    const T mean_g = sum_g.sum() * inverse_cols, mean_gx = sum_gx.sum() * rstd * inverse_cols;
    const auto gradient = [&](std::int64_t i, std::int64_t count) -> Simd<T> {
      const Simd<T> g = load(dy + i, count) * load(gamma + i, count);
      return rstd * (g - mean_g - (load(x + i, count) - mean) * (rstd * mean_gx));
    };
    write_gradient(dx, work.cols, accumulate, gradient);
  }
}

template <class T>
void wgrad(const LayerNorm& work, std::span<const Operand> operands, T* dgamma, T* dbeta, RowRange rows) {
  for_simd<T>(work.cols, [&](std::int64_t i, std::int64_t count) {
    Simd<T> sum_gamma = load(dgamma + i, count), sum_beta = load(dbeta + i, count);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* stats = row_of<T>(operands[2], row);
      const Simd<T> dy = load(row_of<T>(operands[0], row) + i, count);
      sum_gamma += dy * ((load(row_of<T>(operands[1], row) + i, count) - stats[0]) * stats[1]);
      sum_beta += dy;
    }
    store<T>(dgamma + i, count, sum_gamma);
    store<T>(dbeta + i, count, sum_beta);
  });
}

void run_head(const LayerNorm& work, std::span<const Operand> operands) {
  assert(operands.size() == (work.pass == Pass::backward ? 7u : 5u));
  assert(have_one_dtype(operands));
  const auto is_matrix = [&](std::size_t index) { return has_shape(operands[index], work.rows, work.cols); };
  const auto is_vector = [&](std::size_t index) { return elements_of(operands[index]) == work.cols; };
  const auto is_stats = [&](std::size_t index) { return has_shape(operands[index], work.rows, 2); };
  static_cast<void>(is_matrix), static_cast<void>(is_vector), static_cast<void>(is_stats);
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    switch (work.pass) {
      case Pass::forward:
        assert(is_matrix(0) && is_vector(1) && is_vector(2) && is_matrix(3) && is_stats(4));
        return forward<T>(work, operands);
      case Pass::dgrad:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3) && is_matrix(4));
        return dgrad<T>(work, operands, operands[4], {0, work.rows});
      case Pass::wgrad:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3) && is_vector(4));
        return for_few_rows(work.rows, [&](RowRange rows) {
          wgrad(work, operands, data_of<T>(operands[3]), data_of<T>(operands[4]), rows);
        });
      case Pass::backward:
        assert(is_matrix(0) && is_matrix(1) && is_stats(2) && is_vector(3) && is_vector(4) && is_vector(5) &&
               is_matrix(6));
        return for_few_rows(work.rows, [&](RowRange rows) {
          wgrad(work, operands, data_of<T>(operands[4]), data_of<T>(operands[5]), rows);
          dgrad<T>(work, operands, operands[6], rows);
        });
    }
  });
}

}  // namespace

void run_kernel(const LayerNorm& work, std::span<const Operand> operands) {
  for_heads(work, operands, [&](std::span<const Operand> own) { run_head(work, own); });
}

}  // namespace stretto::host
