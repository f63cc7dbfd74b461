#include <algorithm>
#include <cassert>
#include <cstdint>

#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/operand.hpp"
#include "exec/host/kernels/row.hpp"

namespace stretto::host {
namespace {

// gelu(x) = x/2 · (1 + tanh u), u = sqrt(2/pi) · (x + 0.044715 x³) (Hendrycks & Gimpel, arXiv 1606.08415). It is
// computed as x · sigmoid(2u): one exponential, which Eigen vectorises in both element types, and no cancellation for
// negative x.
constexpr double kTwiceSqrtTwoOverPi = 1.5957691216057307118;
constexpr double kCubic = 0.044715;

template <class T>
Simd<T> sigmoid_of_2u(const Simd<T>& x) {
  constexpr T linear = static_cast<T>(-kTwiceSqrtTwoOverPi), cubic = static_cast<T>(-kTwiceSqrtTwoOverPi * kCubic);
  return (T(1) + (x * (linear + cubic * x.square())).exp()).inverse();
}

template <class T>
void gelu(const Operand& x, const Operand& y) {
  const LoopShape loop = loop_of({&x, &y});
  for (std::int64_t row = 0; row < loop.rows; ++row) {
    const T* from = row_of<T>(x, row);
    T* to = row_of<T>(y, row);
    for_simd<T>(loop.cols, [&](std::int64_t i, std::int64_t count) {
      const Simd<T> v = load(from + i, count);
      store<T>(to + i, count, v * sigmoid_of_2u<T>(v));
    });
  }
}

template <class T>
void gelu_backward(const Operand& dy, const Operand& x, const Operand& dx) {
  constexpr T linear = static_cast<T>(kTwiceSqrtTwoOverPi), cubic = static_cast<T>(3 * kTwiceSqrtTwoOverPi * kCubic);
  const LoopShape loop = loop_of({&dy, &x, &dx});
  for (std::int64_t row = 0; row < loop.rows; ++row) {
    const T* upstream = row_of<T>(dy, row);
    const T* from = row_of<T>(x, row);
    T* to = row_of<T>(dx, row);
    for_simd<T>(loop.cols, [&](std::int64_t i, std::int64_t count) {
      const Simd<T> v = load(from + i, count);
      const Simd<T> s = sigmoid_of_2u<T>(v);
      const Simd<T> slope = s + v * s * (T(1) - s) * (linear + cubic * v.square());
      store<T>(to + i, count, load(upstream + i, count) * slope);
    });
  }
}

template <class T>
Simd<T> sigmoid(const Simd<T>& x) {
  return (T(1) + (-x).exp()).inverse();
}

template <class T>
void swiglu(const Operand& gate, const Operand& up, const Operand& y) {
  for (std::int64_t row = 0; row < y.rows; ++row) {
    const T* gates = row_of<T>(gate, row);
    const T* ups = row_of<T>(up, row);
    T* to = row_of<T>(y, row);
    for_simd<T>(y.cols, [&](std::int64_t i, std::int64_t count) {
      const Simd<T> g = load(gates + i, count);
      store<T>(to + i, count, g * sigmoid<T>(g) * load(ups + i, count));
    });
  }
}

// Each row of dx has the gradient of the gate, then that of up.
template <class T>
void swiglu_backward(const Operand& dy, const Operand& gate, const Operand& up, const Operand& dx) {
  for (std::int64_t row = 0; row < dy.rows; ++row) {
    const T* upstream = row_of<T>(dy, row);
    const T* gates = row_of<T>(gate, row);
    const T* ups = row_of<T>(up, row);
    T* to_gate = row_of<T>(dx, row);
    T* to_up = to_gate + dy.cols;
    for_simd<T>(dy.cols, [&](std::int64_t i, std::int64_t count) {
      const Simd<T> d = load(upstream + i, count), g = load(gates + i, count), s = sigmoid<T>(g);
      store<T>(to_gate + i, count, d * load(ups + i, count) * s * (T(1) + g * (T(1) - s)));
      store<T>(to_up + i, count, d * g * s);
    });
  }
}

template <class T>
void add(const Operand& a, const Operand& b, const Operand& c) {
  const LoopShape loop = loop_of({&a, &b, &c});
  for (std::int64_t row = 0; row < loop.rows; ++row) {
    const T* left = row_of<T>(a, row);
    const T* right = row_of<T>(b, row);
    T* to = row_of<T>(c, row);
    for_simd<T>(loop.cols, [&](std::int64_t i, std::int64_t count) {
      store<T>(to + i, count, load(left + i, count) + load(right + i, count));
    });
  }
}

template <class T>
void bias_add(const Operand& a, const Operand& b, const Operand& bias, const Operand& c) {
  const T* add = data_of<T>(bias);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const T* left = row_of<T>(a, row);
    const T* right = row_of<T>(b, row);
    T* to = row_of<T>(c, row);
    for_simd<T>(c.cols, [&](std::int64_t i, std::int64_t count) {
      store<T>(to + i, count, load(left + i, count) + (load(right + i, count) + load(add + i, count)));
    });
  }
}

template <class T>
void column_sum(const Operand& dy, const Operand& db) {
  constexpr std::int64_t rows_at_once = 8;  // so that loading and storing db does not dominate
  T* sum = data_of<T>(db);
  for (std::int64_t first = 0; first < dy.rows; first += rows_at_once) {
    const std::int64_t last = std::min(first + rows_at_once, dy.rows);
    for_simd<T>(dy.cols, [&](std::int64_t i, std::int64_t count) {
      Simd<T> lanes = load(sum + i, count);
      for (std::int64_t row = first; row < last; ++row) lanes += load(row_of<T>(dy, row) + i, count);
      store<T>(sum + i, count, lanes);
    });
  }
}

}  // namespace

void run_kernel(const Elementwise& work, std::span<const Operand> operands) {
  assert(has_shape(operands[0], work.rows, work.cols));
  assert(have_one_dtype(operands));
  with_compute_type(operands[0].dtype, [&](auto type) {
    using T = decltype(type);
    switch (work.fn) {
      case ElementwiseFn::gelu:
        assert(operands.size() == 2);
        return gelu<T>(operands[0], operands[1]);
      case ElementwiseFn::gelu_backward:
        assert(operands.size() == 3);
        return gelu_backward<T>(operands[0], operands[1], operands[2]);
      case ElementwiseFn::add:
        assert(operands.size() == 3);
        return add<T>(operands[0], operands[1], operands[2]);
      case ElementwiseFn::accumulate:
        assert(operands.size() == 2);
        return add<T>(operands[1], operands[0], operands[1]);
      case ElementwiseFn::bias_add:
        assert(operands.size() == 4 && elements_of(operands[2]) == work.cols);
        return bias_add<T>(operands[0], operands[1], operands[2], operands[3]);
      case ElementwiseFn::column_sum:
        assert(operands.size() == 2 && elements_of(operands[1]) == work.cols);
        return column_sum<T>(operands[0], operands[1]);
      case ElementwiseFn::swiglu:
        assert(operands.size() == 3 && has_shape(operands[1], work.rows, work.cols));
        assert(has_shape(operands[2], work.rows, work.cols));
        return swiglu<T>(operands[0], operands[1], operands[2]);
      case ElementwiseFn::swiglu_backward:
        assert(operands.size() == 4 && has_shape(operands[1], work.rows, work.cols));
        assert(has_shape(operands[2], work.rows, work.cols) && has_shape(operands[3], work.rows, 2 * work.cols));
        return swiglu_backward<T>(operands[0], operands[1], operands[2], operands[3]);
    }
  });
}

}  // namespace stretto::host
