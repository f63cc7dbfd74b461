#pragma once
#include <Eigen/Core>
#include <cstdint>
#include <cstring>

namespace stretto::host {

// Vectorised loops over one row. Every element, including a row's tail, goes through the same packet instructions, and
// sums are taken in an order that depends only on the length: results depend neither on the alignment of the data nor
// on how a range was split into calls at multiples of kSimdWidth.

// Elements handled at once: four AVX2 registers.
template <class T>
constexpr std::int64_t kSimdWidth = 128 / static_cast<std::int64_t>(sizeof(T));
template <class T>
using Simd = Eigen::Array<T, kSimdWidth<T>, 1>;

// Loads the first `count` of kSimdWidth elements at `from`; the others are `pad`.
template <class T>
Simd<T> load(const T* from, std::int64_t count, T pad = T(0)) {
  if (count >= kSimdWidth<T>) return Eigen::Map<const Simd<T>>(from);
  Simd<T> lanes = Simd<T>::Constant(pad);
  std::memcpy(lanes.data(), from, static_cast<std::size_t>(count) * sizeof(T));
  return lanes;
}

// Stores the first `count` of kSimdWidth elements at `to`; further memory is not touched.
template <class T>
void store(T* to, std::int64_t count, const Simd<T>& lanes) {
  if (count >= kSimdWidth<T>) {
    Eigen::Map<Simd<T>>{to} = lanes;
  } else {
    std::memcpy(to, lanes.data(), static_cast<std::size_t>(count) * sizeof(T));
  }
}

// Calls fn(i, count) for i = 0, kSimdWidth, 2·kSimdWidth, … < n; count is kSimdWidth except perhaps in the last call.
template <class T, class Fn>
void for_simd(std::int64_t n, Fn fn) {
  std::int64_t i = 0;
  for (; i + kSimdWidth<T> <= n; i += kSimdWidth<T>) fn(i, kSimdWidth<T>);
  if (i < n) fn(i, n - i);
}

// Returns Σ x.
template <class T>
T row_sum(const T* x, std::int64_t n) {
  Simd<T> sum = Simd<T>::Zero();
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) { sum += load(x + i, count); });
  return sum.sum();
}

// Returns max x, n ≥ 1. With a NaN in the row the result is unspecified.
template <class T>
T row_max(const T* x, std::int64_t n) {
  Simd<T> top = Simd<T>::Constant(x[0]);
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) { top = top.max(load(x + i, count, x[0])); });
  return top.maxCoeff();
}

// x ← exp(x − shift); returns Σ x. NaNs are kept.
template <class T>
T row_exp(T* x, std::int64_t n, T shift) {
  Simd<T> sum = Simd<T>::Zero();
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) {
    Simd<T> y = (load(x + i, count, shift) - shift).exp();
    store(x + i, count, y);
    if (count < kSimdWidth<T>) y.tail(kSimdWidth<T> - count).setZero();
    sum += y;
  });
  return sum.sum();
}

// x ← factor · x
template <class T>
void row_scale(T* x, std::int64_t n, T factor) {
  for_simd<T>(n, [&](std::int64_t i, std::int64_t count) { store<T>(x + i, count, load(x + i, count) * factor); });
}

}  // namespace stretto::host
