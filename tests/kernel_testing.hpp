#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"
#include "exec/host/kernels/kernels.hpp"

// Matrices and comparisons for the unit tests of the kernels only. Sizes are in elements.
namespace stretto::host::testing {

template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return Dtype::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return Dtype::f64;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return Dtype::bf16;
  } else if constexpr (std::is_same_v<T, std::int16_t>) {
    return Dtype::i16;
  } else {
    static_assert(std::is_same_v<T, std::int32_t>);
    return Dtype::i32;
  }
}

// A row-major matrix whose rows are ld ≥ cols elements apart. New ones hold NaN everywhere (integers: 0), so a kernel
// that reads an output before it writes it gives NaNs. Owns its elements.
template <class T>
struct Matrix {
  std::int64_t rows, cols, ld;
  std::vector<T> data;

  Matrix(std::int64_t rows_, std::int64_t cols_, std::int64_t gap = 0)
      : rows(rows_), cols(cols_), ld(cols_ + gap), data(static_cast<std::size_t>(rows_ * ld)) {
    if constexpr (std::is_floating_point_v<T>) data.assign(data.size(), std::numeric_limits<T>::quiet_NaN());
  }
  T& at(std::int64_t row, std::int64_t col) { return data[static_cast<std::size_t>(row * ld + col)]; }
  T at(std::int64_t row, std::int64_t col) const { return data[static_cast<std::size_t>(row * ld + col)]; }
  Operand operand(AccessMode mode = AccessMode::read) { return {data.data(), dtype_of<T>(), rows, cols, ld, mode}; }
  Operand write() { return operand(AccessMode::write); }
  Operand accumulate() { return operand(AccessMode::accumulate); }
  template <class Fn>
  void for_each(Fn fn) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) fn(row, col, at(row, col));
    }
  }
};

// Returns a matrix uniform in [-1, 1), equal on every machine and for every T up to rounding.
template <class T>
Matrix<T> random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed, std::int64_t gap = 0) {
  std::mt19937_64 generator(seed);
  Matrix<T> matrix(rows, cols, gap);
  matrix.for_each([&](std::int64_t, std::int64_t, T& value) {
    value = static_cast<T>(static_cast<double>(generator() >> 11) * 0x1p-52 - 1);
  });
  return matrix;
}

template <class T>
Matrix<T> constant_matrix(std::int64_t rows, std::int64_t cols, T value, std::int64_t gap = 0) {
  Matrix<T> matrix(rows, cols, gap);
  matrix.for_each([&](std::int64_t, std::int64_t, T& element) { element = value; });
  return matrix;
}

inline Matrix<std::int32_t> column(const std::vector<std::int32_t>& values) {
  Matrix<std::int32_t> matrix(static_cast<std::int64_t>(values.size()), 1);
  matrix.data = values;
  return matrix;
}

inline void run(const Work& work, const std::vector<Operand>& operands) { run_work(work, operands); }

// Returns max |a − b|; infinity when any is NaN.
template <class A, class B>
double max_difference(const Matrix<A>& a, const Matrix<B>& b) {
  double largest = 0;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t col = 0; col < a.cols; ++col) {
      const double difference = std::fabs(static_cast<double>(a.at(row, col)) - static_cast<double>(b.at(row, col)));
      if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
    }
  }
  return largest;
}

// Returns Σ weight ∘ value: a scalar function whose gradient with respect to `value` is `weight`.
inline double weighted_sum(const Matrix<double>& weight, const Matrix<double>& value) {
  double sum = 0;
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t col = 0; col < weight.cols; ++col) sum += weight.at(row, col) * value.at(row, col);
  }
  return sum;
}

// Returns the gradient of fn() with respect to every element of `x`, by central differences: the error is about 1e-9
// for O(1) values.
template <class Fn>
Matrix<double> numeric_gradient(Matrix<double>& x, Fn fn) {
  constexpr double step = 1e-5;
  Matrix<double> gradient(x.rows, x.cols);
  x.for_each([&](std::int64_t row, std::int64_t col, double& value) {
    const double before = value;
    value = before + step;
    const double above = fn();
    value = before - step;
    const double below = fn();
    value = before;
    gradient.at(row, col) = (above - below) / (2 * step);
  });
  return gradient;
}

}  // namespace stretto::host::testing
