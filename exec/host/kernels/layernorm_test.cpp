#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

template <class T>
struct LayerNormRun {
  Matrix<T> x, gamma, beta, dy, y, stats, dx, dgamma, dbeta;
};

template <class T>
LayerNormRun<T> run_layernorm(std::int64_t rows, std::int64_t cols) {
  LayerNormRun<T> r{random_matrix<T>(rows, cols, 1, 2),
                    random_matrix<T>(1, cols, 2),
                    random_matrix<T>(1, cols, 3),
                    random_matrix<T>(rows, cols, 4, 1),
                    Matrix<T>(rows, cols, 3),
                    Matrix<T>(rows, 2, 1),
                    Matrix<T>(rows, cols),
                    constant_matrix(1, cols, T(0)),
                    constant_matrix(1, cols, T(0))};
  run(LayerNorm{Pass::forward, rows, cols},
      {r.x.operand(), r.gamma.operand(), r.beta.operand(), r.y.write(), r.stats.write()});
  run(LayerNorm{Pass::dgrad, rows, cols},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), r.dx.write()});
  run(LayerNorm{Pass::wgrad, rows, cols},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), r.dgamma.accumulate(), r.dbeta.accumulate()});
  return r;
}

}  // namespace

TEST_CASE("layernorm forward agrees with its definition", "[kernels]") {
  for (const std::int64_t cols : {1, 7, 16, 100}) {
    CAPTURE(cols);
    const LayerNormRun<double> r = run_layernorm<double>(3, cols);
    for (std::int64_t row = 0; row < 3; ++row) {
      double mean = 0, variance = 0;
      for (std::int64_t col = 0; col < cols; ++col) mean += r.x.at(row, col) / static_cast<double>(cols);
      for (std::int64_t col = 0; col < cols; ++col) {
        variance += std::pow(r.x.at(row, col) - mean, 2) / static_cast<double>(cols);
      }
      CHECK(r.stats.at(row, 0) == Approx(mean).margin(1e-14));
      CHECK(r.stats.at(row, 1) == Approx(1 / std::sqrt(variance + 1e-5)).epsilon(1e-10));
      for (std::int64_t col = 0; col < cols; ++col) {
        const double normalised = (r.x.at(row, col) - mean) / std::sqrt(variance + 1e-5);
        CHECK(r.y.at(row, col) == Approx(normalised * r.gamma.at(0, col) + r.beta.at(0, col)).margin(1e-12));
      }
    }
  }
}

TEST_CASE("layernorm gradients agree with finite differences", "[kernels]") {
  for (const std::int64_t cols : {5, 16, 37}) {
    CAPTURE(cols);
    const std::int64_t rows = 6;
    LayerNormRun<double> r = run_layernorm<double>(rows, cols);
    Matrix<double> y(rows, cols), stats(rows, 2);
    const auto loss = [&] {
      run(LayerNorm{Pass::forward, rows, cols},
          {r.x.operand(), r.gamma.operand(), r.beta.operand(), y.write(), stats.write()});
      return weighted_sum(r.dy, y);
    };
    CHECK(max_difference(r.dx, numeric_gradient(r.x, loss)) < 1e-7);
    CHECK(max_difference(r.dgamma, numeric_gradient(r.gamma, loss)) < 1e-8);
    CHECK(max_difference(r.dbeta, numeric_gradient(r.beta, loss)) < 1e-8);
  }
}

TEST_CASE("layernorm gradients accumulate when asked to", "[kernels]") {
  LayerNormRun<double> r = run_layernorm<double>(5, 19);
  Matrix<double> dx = random_matrix<double>(5, 19, 9, 4);
  Matrix<double> expected = dx;
  expected.for_each([&](std::int64_t row, std::int64_t col, double& value) { value += r.dx.at(row, col); });
  run(LayerNorm{Pass::dgrad, 5, 19},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), dx.accumulate()});
  CHECK(max_difference(dx, expected) < 1e-15);

  Matrix<double> twice = r.dgamma;
  run(LayerNorm{Pass::wgrad, 5, 19},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), twice.accumulate(), r.dbeta.accumulate()});
  twice.for_each([](std::int64_t, std::int64_t, double& value) { value /= 2; });
  CHECK(max_difference(twice, r.dgamma) < 1e-14);
}

TEST_CASE("both gradients of layernorm at once have the same bits", "[kernels]") {
  for (const std::int64_t rows : {1, 4, 7})
    for (const bool adds : {false, true}) {
      LayerNormRun<float> r = run_layernorm<float>(rows, 37);
      Matrix<float> dx = random_matrix<float>(rows, 37, 9, 4), dgamma = random_matrix<float>(1, 37, 5),
                    dbeta = random_matrix<float>(1, 37, 6);
      Matrix<float> one_dx = dx, one_dgamma = dgamma, one_dbeta = dbeta;
      run(LayerNorm{Pass::dgrad, rows, 37},
          {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), adds ? dx.accumulate() : dx.write()});
      run(LayerNorm{Pass::wgrad, rows, 37},
          {r.dy.operand(), r.x.operand(), r.stats.operand(), dgamma.accumulate(), dbeta.accumulate()});
      run(LayerNorm{Pass::backward, rows, 37},
          {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), one_dgamma.accumulate(),
           one_dbeta.accumulate(), adds ? one_dx.accumulate() : one_dx.write()});
      CHECK(max_difference(one_dx, dx) == 0);
      CHECK(max_difference(one_dgamma, dgamma) == 0);
      CHECK(max_difference(one_dbeta, dbeta) == 0);
    }
}

TEST_CASE("layernorm in f32 agrees with f64 and does not depend on alignment", "[kernels]") {
  const LayerNormRun<float> single = run_layernorm<float>(9, 133);
  const LayerNormRun<double> exact = run_layernorm<double>(9, 133);
  CHECK(max_difference(single.y, exact.y) < 2e-6);
  CHECK(max_difference(single.dx, exact.dx) < 1e-5);
  CHECK(max_difference(single.dgamma, exact.dgamma) < 1e-5);
  CHECK(max_difference(single.dbeta, exact.dbeta) < 1e-5);

  // One row at eight addresses must give identical bits.
  const auto row = random_matrix<float>(1, 133, 5);
  for (std::int64_t shift = 0; shift < 8; ++shift) {
    Matrix<float> x(1, 133, 8), gamma = constant_matrix(1, 133, 1.f), beta = constant_matrix(1, 133, 0.f);
    Matrix<float> y(1, 133), stats(1, 2), y0(1, 133), stats0(1, 2);
    std::copy_n(row.data.begin(), 133, x.data.begin() + shift);
    Matrix<float> original = row;
    const LayerNorm work{Pass::forward, 1, 133};
    host::Operand shifted = x.operand();
    shifted.data = x.data.data() + shift;
    run(work, {shifted, gamma.operand(), beta.operand(), y.write(), stats.write()});
    run(work, {original.operand(), gamma.operand(), beta.operand(), y0.write(), stats0.write()});
    CHECK(stats.data == stats0.data);
    CHECK(y.data == y0.data);
  }
}
