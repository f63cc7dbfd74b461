#include <array>
#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

constexpr std::int64_t kGatedRows = 6, kGatedCols = 45;

template <class T>
Matrix<T> wide_input(std::int64_t gap = 0) {
  auto x = random_matrix<T>(kGatedRows, kGatedCols, 1, gap);
  x.for_each([](std::int64_t, std::int64_t, T& value) { value *= 6; });
  return x;
}

template <class T>
Matrix<T> gelu_of(Matrix<T>& x, std::int64_t gap = 0) {
  Matrix<T> y(kGatedRows, kGatedCols, gap);
  run(Elementwise{ElementwiseFn::gelu, kGatedRows, kGatedCols}, {x.operand(), y.write()});
  return y;
}

}  // namespace

TEST_CASE("gelu is the tanh approximation, with and without gaps between rows", "[kernels]") {
  for (const std::int64_t gap : {0, 5}) {
    auto x = wide_input<double>(gap);
    Matrix<double> expected = x;
    expected.for_each([](std::int64_t, std::int64_t, double& v) {
      v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    });
    CHECK(max_difference(gelu_of(x, gap), expected) < 1e-14);
    auto single = wide_input<float>(gap);
    CHECK(max_difference(gelu_of(single, gap), expected) < 2e-6);
  }
}

TEST_CASE("gelu at the extremes", "[kernels]") {
  auto x = constant_matrix<float>(kGatedRows, kGatedCols, -200.f);
  x.at(0, 0) = 200;
  x.at(0, 1) = NAN;
  x.at(0, 2) = 0;
  const auto y = gelu_of(x);
  CHECK(y.at(0, 0) == 200);
  CHECK(std::isnan(y.at(0, 1)));
  CHECK(y.at(0, 2) == 0);
  CHECK(std::fabs(y.at(0, 3)) < 1e-30f);

  auto dy = constant_matrix<float>(kGatedRows, kGatedCols, 1.f);
  Matrix<float> dx(kGatedRows, kGatedCols);
  run(Elementwise{ElementwiseFn::gelu_backward, kGatedRows, kGatedCols}, {dy.operand(), x.operand(), dx.write()});
  CHECK(dx.at(0, 0) == 1);
  CHECK(std::isnan(dx.at(0, 1)));
  CHECK(dx.at(0, 2) == 0.5f);
  CHECK(std::fabs(dx.at(0, 3)) < 1e-25f);
}

TEST_CASE("gelu_backward agrees with finite differences", "[kernels]") {
  auto x = wide_input<double>(3);
  auto dy = random_matrix<double>(kGatedRows, kGatedCols, 2, 1);
  Matrix<double> dx(kGatedRows, kGatedCols, 2);
  run(Elementwise{ElementwiseFn::gelu_backward, kGatedRows, kGatedCols}, {dy.operand(), x.operand(), dx.write()});
  CHECK(max_difference(dx, numeric_gradient(x, [&] { return weighted_sum(dy, gelu_of(x)); })) < 1e-7);

  auto x32 = wide_input<float>(), dy32 = random_matrix<float>(kGatedRows, kGatedCols, 2);
  Matrix<float> dx32(kGatedRows, kGatedCols);
  run(Elementwise{ElementwiseFn::gelu_backward, kGatedRows, kGatedCols}, {dy32.operand(), x32.operand(), dx32.write()});
  CHECK(max_difference(dx32, dx) < 2e-6);
}

TEST_CASE("add, also in place", "[kernels]") {
  auto a = random_matrix<float>(kGatedRows, kGatedCols, 1, 1), b = random_matrix<float>(kGatedRows, kGatedCols, 2, 7);
  Matrix<float> c(kGatedRows, kGatedCols, 3), expected(kGatedRows, kGatedCols);
  expected.for_each([&](std::int64_t row, std::int64_t col, float& v) { v = a.at(row, col) + b.at(row, col); });
  const Elementwise work{ElementwiseFn::add, kGatedRows, kGatedCols};
  run(work, {a.operand(), b.operand(), c.write()});
  CHECK(max_difference(c, expected) == 0);
  run(work, {a.operand(), b.operand(), a.write()});
  CHECK(max_difference(a, expected) == 0);
}

TEST_CASE("bias_add adds a row to every row of the sum", "[kernels]") {
  for (const std::int64_t gap : {0, 3}) {
    auto a = random_matrix<double>(5, kGatedCols, 1, gap), b = random_matrix<double>(5, kGatedCols, 2),
         bias = random_matrix<double>(1, kGatedCols, 3);
    Matrix<double> c(5, kGatedCols, gap);
    run(Elementwise{ElementwiseFn::bias_add, 5, kGatedCols}, {a.operand(), b.operand(), bias.operand(), c.write()});
    c.for_each([&](std::int64_t row, std::int64_t col, double& value) {
      CHECK(value == a.at(row, col) + (b.at(row, col) + bias.at(0, col)));
    });
  }
}

TEST_CASE("column_sum adds row after row to what is there", "[kernels]") {
  for (const std::int64_t rows : {1, 8, 21}) {
    CAPTURE(rows);
    auto dy = random_matrix<float>(rows, kGatedCols, 1, 2), db = random_matrix<float>(1, kGatedCols, 3);
    Matrix<float> expected = db;
    dy.for_each([&](std::int64_t, std::int64_t col, float value) { expected.at(0, col) += value; });
    run(Elementwise{ElementwiseFn::column_sum, rows, kGatedCols}, {dy.operand(), db.accumulate()});
    CHECK(max_difference(db, expected) == 0);
  }
}

namespace {

// Returns the operands of gate and up, which are the two halves of each row.
template <class T>
std::array<exec::Operand, 2> halves_of(Matrix<T>& x) {
  std::array<exec::Operand, 2> halves = {x.operand(), x.operand()};
  for (exec::Operand& half : halves) half.cols = kGatedCols;
  halves[1].data = static_cast<T*>(halves[1].data) + kGatedCols;
  return halves;
}

template <class T>
Matrix<T> swiglu_of(Matrix<T>& x) {
  Matrix<T> y(kGatedRows, kGatedCols, 2);
  const auto [gate, up] = halves_of(x);
  run(Elementwise{ElementwiseFn::swiglu, kGatedRows, kGatedCols}, {gate, up, y.write()});
  return y;
}

template <class T>
Matrix<T> gate_and_up(std::int64_t gap = 0) {
  auto x = random_matrix<T>(kGatedRows, 2 * kGatedCols, 5, gap);
  x.for_each([](std::int64_t, std::int64_t, T& value) { value *= 6; });
  return x;
}

}  // namespace

TEST_CASE("swiglu agrees with its definition", "[kernels]") {
  auto x = gate_and_up<double>(3);
  Matrix<double> expected(kGatedRows, kGatedCols);
  expected.for_each([&](std::int64_t row, std::int64_t col, double& value) {
    const double gate = x.at(row, col);
    value = gate / (1 + std::exp(-gate)) * x.at(row, kGatedCols + col);
  });
  CHECK(max_difference(swiglu_of(x), expected) < 1e-13);
  auto single = gate_and_up<float>();
  CHECK(max_difference(swiglu_of(single), expected) < 1e-5);

  auto extreme = constant_matrix<float>(kGatedRows, 2 * kGatedCols, 1.f);
  extreme.at(0, 0) = -200, extreme.at(0, 1) = 200, extreme.at(0, 2) = NAN;
  const auto y = swiglu_of(extreme);
  CHECK(std::fabs(y.at(0, 0)) < 1e-30f);
  CHECK(y.at(0, 1) == 200);
  CHECK(std::isnan(y.at(0, 2)));
}

TEST_CASE("swiglu_backward agrees with finite differences", "[kernels]") {
  auto x = gate_and_up<double>(3);
  auto dy = random_matrix<double>(kGatedRows, kGatedCols, 2, 1);
  Matrix<double> dx(kGatedRows, 2 * kGatedCols, 2);
  const Elementwise work{ElementwiseFn::swiglu_backward, kGatedRows, kGatedCols};
  const auto [gate, up] = halves_of(x);
  run(work, {dy.operand(), gate, up, dx.write()});
  CHECK(max_difference(dx, numeric_gradient(x, [&] { return weighted_sum(dy, swiglu_of(x)); })) < 1e-7);

  auto x32 = gate_and_up<float>(), dy32 = random_matrix<float>(kGatedRows, kGatedCols, 2);
  Matrix<float> dx32(kGatedRows, 2 * kGatedCols);
  const auto [gate32, up32] = halves_of(x32);
  run(work, {dy32.operand(), gate32, up32, dx32.write()});
  CHECK(max_difference(dx32, dx) < 1e-5);
}
