#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 3, kKvHeads = 1;

Rope work_of(std::int64_t seq, std::int64_t head_dim, double base = 10000) {
  return {Pass::forward, kBatch * seq, kHeads, kKvHeads, seq, head_dim, base};
}

template <class T>
Matrix<T> input_of(const Rope& work) {
  return random_matrix<T>(work.rows, (work.heads + 2 * work.kv_heads) * work.head_dim, 1, 3);
}

template <class T>
Matrix<T> turned(Rope work, Matrix<T> x, Pass pass = Pass::forward) {
  work.pass = pass;
  run(work, {x.accumulate()});
  return x;
}

// The definition, pair by pair; v as it was.
Matrix<double> naive(const Rope& work, const Matrix<double>& x) {
  Matrix<double> y = x;
  const std::int64_t half = work.head_dim / 2;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    for (std::int64_t head = 0; head < work.heads + work.kv_heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = double(row % work.seq) * std::pow(work.base, -2.0 * double(i) / double(work.head_dim));
        const double a = x.at(row, head * work.head_dim + i), b = x.at(row, head * work.head_dim + half + i);
        y.at(row, head * work.head_dim + i) = a * std::cos(angle) - b * std::sin(angle);
        y.at(row, head * work.head_dim + half + i) = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("rope agrees with its definition, v untouched", "[kernels]") {
  for (const Rope& work : {work_of(5, 2), work_of(7, 6, 50), work_of(67, 64), work_of(500, 36, 5e5)}) {
    CAPTURE(work.seq, work.head_dim);
    const auto x = input_of<double>(work);
    const auto y = turned(work, x);
    CHECK(max_difference(y, naive(work, x)) < 1e-12);
    for (std::int64_t col = (kHeads + kKvHeads) * work.head_dim; col < y.cols; ++col)
      CHECK(y.at(3, col) == x.at(3, col));
    CHECK(max_difference(turned(work, input_of<float>(work)), y) < 1e-6);
  }
}

TEST_CASE("rope at far positions does not drift", "[kernels]") {
  const Rope work{Pass::forward, 16384, 1, 1, 16384, 4, 10000};
  const auto x = input_of<double>(work);
  CHECK(max_difference(turned(work, x), naive(work, x)) < 1e-11);  // of the angle 16383 rad itself: 2e-12
}

TEST_CASE("rope dgrad agrees with finite differences and turns back", "[kernels]") {
  const Rope work = work_of(4, 6, 20);
  auto x = input_of<double>(work);
  const auto dy = random_matrix<double>(x.rows, x.cols, 2, 1);
  const auto dx = turned(work, dy, Pass::dgrad);
  CHECK(max_difference(dx, numeric_gradient(x, [&] { return weighted_sum(dy, turned(work, x)); })) < 1e-8);
  CHECK(max_difference(turned(work, turned(work, x), Pass::dgrad), x) < 1e-15);
}
