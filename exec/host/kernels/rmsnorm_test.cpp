#include <catch2/catch.hpp>

#include "tests/kernel_testing.hpp"

using namespace stretto;
using namespace stretto::host::testing;

namespace {

template <class T>
struct RmsNormRun {
  Matrix<T> x, gamma, dy, y, stats, dx, dgamma;
};

template <class T>
RmsNormRun<T> run_rmsnorm(std::int64_t rows, std::int64_t cols) {
  RmsNormRun<T> r{random_matrix<T>(rows, cols, 1, 2), random_matrix<T>(1, cols, 2), random_matrix<T>(rows, cols, 4, 1),
                  Matrix<T>(rows, cols, 3),           Matrix<T>(rows, 1, 1),        Matrix<T>(rows, cols),
                  constant_matrix(1, cols, T(0))};
  run(RmsNorm{Pass::forward, rows, cols}, {r.x.operand(), r.gamma.operand(), r.y.write(), r.stats.write()});
  run(RmsNorm{Pass::dgrad, rows, cols},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), r.dx.write()});
  run(RmsNorm{Pass::wgrad, rows, cols}, {r.dy.operand(), r.x.operand(), r.stats.operand(), r.dgamma.accumulate()});
  return r;
}

}  // namespace

TEST_CASE("rmsnorm forward agrees with its definition", "[kernels]") {
  for (const std::int64_t cols : {1, 7, 16, 100}) {
    CAPTURE(cols);
    const RmsNormRun<double> r = run_rmsnorm<double>(3, cols);
    for (std::int64_t row = 0; row < 3; ++row) {
      double mean_square = 0;
      for (std::int64_t col = 0; col < cols; ++col) mean_square += std::pow(r.x.at(row, col), 2) / double(cols);
      const double rms = std::sqrt(mean_square + 1e-5);
      CHECK(r.stats.at(row, 0) == Approx(1 / rms).epsilon(1e-12));
      for (std::int64_t col = 0; col < cols; ++col)
        CHECK(r.y.at(row, col) == Approx(r.x.at(row, col) / rms * r.gamma.at(0, col)).margin(1e-12));
    }
  }
}

TEST_CASE("rmsnorm gradients agree with finite differences", "[kernels]") {
  for (const std::int64_t cols : {5, 16, 37}) {
    CAPTURE(cols);
    const std::int64_t rows = 6;
    RmsNormRun<double> r = run_rmsnorm<double>(rows, cols);
    Matrix<double> y(rows, cols), stats(rows, 1);
    const auto loss = [&] {
      run(RmsNorm{Pass::forward, rows, cols}, {r.x.operand(), r.gamma.operand(), y.write(), stats.write()});
      return weighted_sum(r.dy, y);
    };
    CHECK(max_difference(r.dx, numeric_gradient(r.x, loss)) < 1e-7);
    CHECK(max_difference(r.dgamma, numeric_gradient(r.gamma, loss)) < 1e-8);
  }
}

TEST_CASE("rmsnorm gradients accumulate when asked to", "[kernels]") {
  RmsNormRun<double> r = run_rmsnorm<double>(5, 19);
  Matrix<double> dx = random_matrix<double>(5, 19, 9, 4);
  Matrix<double> expected = dx;
  expected.for_each([&](std::int64_t row, std::int64_t col, double& value) { value += r.dx.at(row, col); });
  run(RmsNorm{Pass::dgrad, 5, 19},
      {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), dx.accumulate()});
  CHECK(max_difference(dx, expected) < 1e-15);

  Matrix<double> twice = r.dgamma;
  run(RmsNorm{Pass::wgrad, 5, 19}, {r.dy.operand(), r.x.operand(), r.stats.operand(), twice.accumulate()});
  twice.for_each([](std::int64_t, std::int64_t, double& value) { value /= 2; });
  CHECK(max_difference(twice, r.dgamma) < 1e-14);
}

TEST_CASE("rmsnorm of heads is that of as many rows", "[kernels]") {
  constexpr std::int64_t rows = 4, heads = 3, cols = 19;
  Matrix<double> x = random_matrix<double>(rows * heads, cols, 1), gamma = random_matrix<double>(1, cols, 2),
                 dy = random_matrix<double>(rows * heads, cols, 4);
  struct Results {
    Matrix<double> y{rows * heads, cols}, stats{rows * heads, 1}, dx{rows * heads, cols},
        dgamma = constant_matrix(1, cols, 0.0);
  } of_rows, of_heads;
  for (Results* to : {&of_rows, &of_heads}) {
    const bool has_heads = to == &of_heads;
    const auto shaped = [&](exec::Operand operand) {
      if (has_heads) operand.rows = rows, operand.ld = operand.cols *= heads;
      return operand;
    };
    const auto norm = [&](Pass pass) {
      return has_heads ? RmsNorm{pass, rows, cols, heads} : RmsNorm{pass, rows * heads, cols};
    };
    run(norm(Pass::forward), {shaped(x.operand()), gamma.operand(), shaped(to->y.write()), shaped(to->stats.write())});
    const exec::Operand stats = shaped(to->stats.operand());
    run(norm(Pass::backward), {shaped(dy.operand()), shaped(x.operand()), stats, gamma.operand(),
                               to->dgamma.accumulate(), shaped(to->dx.write())});
    run(norm(Pass::wgrad), {shaped(dy.operand()), shaped(x.operand()), stats, to->dgamma.accumulate()});
    run(norm(Pass::dgrad), {shaped(dy.operand()), shaped(x.operand()), stats, gamma.operand(), shaped(to->dx.write())});
  }
  CHECK(max_difference(of_heads.y, of_rows.y) == 0);
  CHECK(max_difference(of_heads.dx, of_rows.dx) == 0);
  CHECK(max_difference(of_heads.dgamma, of_rows.dgamma) < 1e-13);
}

TEST_CASE("both gradients of rmsnorm at once have the same bits", "[kernels]") {
  for (const std::int64_t rows : {1, 4, 7})
    for (const bool adds : {false, true}) {
      RmsNormRun<float> r = run_rmsnorm<float>(rows, 37);
      Matrix<float> dx = random_matrix<float>(rows, 37, 9, 4), dgamma = random_matrix<float>(1, 37, 5);
      Matrix<float> one_dx = dx, one_dgamma = dgamma;
      run(RmsNorm{Pass::dgrad, rows, 37},
          {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(), adds ? dx.accumulate() : dx.write()});
      run(RmsNorm{Pass::wgrad, rows, 37}, {r.dy.operand(), r.x.operand(), r.stats.operand(), dgamma.accumulate()});
      run(RmsNorm{Pass::backward, rows, 37}, {r.dy.operand(), r.x.operand(), r.stats.operand(), r.gamma.operand(),
                                              one_dgamma.accumulate(), adds ? one_dx.accumulate() : one_dx.write()});
      CHECK(max_difference(one_dx, dx) == 0);
      CHECK(max_difference(one_dgamma, dgamma) == 0);
    }
}

TEST_CASE("rmsnorm in f32 agrees with f64", "[kernels]") {
  const RmsNormRun<float> single = run_rmsnorm<float>(9, 133);
  const RmsNormRun<double> exact = run_rmsnorm<double>(9, 133);
  CHECK(max_difference(single.y, exact.y) < 2e-6);
  CHECK(max_difference(single.dx, exact.dx) < 1e-5);
  CHECK(max_difference(single.dgamma, exact.dgamma) < 1e-5);
}
