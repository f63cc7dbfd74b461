#include "sim/cost/evaluate.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace stretto::sim {
namespace {

// A fit of 10 us and 2 us a unit.
CostFit fit_with(std::vector<MeasuredPoint> measured) {
  CostFit fit;
  fit.coefficients = {10, 2};
  fit.measured = std::move(measured);
  return fit;
}

double at(const CostFit& fit, double feature) { return evaluate_us(fit, std::vector<double>{1, feature}); }

}  // namespace

TEST_CASE("a fit without points is a sum of products", "[sim]") { CHECK(at(fit_with({}), 20) == 50); }

TEST_CASE("a corrected fit is what was measured where it was measured, and the fit far away", "[sim]") {
  // The fit says 50 us at this point.
  const CostFit fit = fit_with({{{1, 20}, 75}});
  CHECK(at(fit, 20) == Approx(75));
  CHECK(at(fit, 20e6) == Approx(10 + 40e6).epsilon(1e-3));
  // Features differ by a factor e, in the root mean square of two logarithms (the constant's is 0): d = 1/√2, and the
  // correction's exponent is log(1.5) · d⁻³ / (d⁻³ + 0.3⁻³).
  const double weight = std::pow(2, 1.5), exponent = std::log(1.5) * weight / (weight + std::pow(0.3, -3));
  CHECK(at(fit, 20 * std::exp(1)) == Approx((10 + 40 * std::exp(1)) * std::exp(exponent)));
}

TEST_CASE("points at one place count as their geometric mean", "[sim]") {
  CHECK(at(fit_with({{{1, 20}, 25}, {{1, 20}, 100}}), 20) == Approx(50));
  CHECK(at(fit_with({{{1, 20}, 50}, {{1, 20}, 200}}), 20) == Approx(100));
}

TEST_CASE("between two points the nearer one counts more", "[sim]") {
  const CostFit fit = fit_with({{{1, 20}, 100}, {{1, 40}, 45}});  // twice the fit, and half of it
  CHECK(at(fit, 22) > 10 + 2 * 22);
  CHECK(at(fit, 38) < 10 + 2 * 38);
}

TEST_CASE("a feature that is 0 somewhere counts in no distance", "[sim]") {
  CostFit fit;
  fit.coefficients = {0, 1, 1};
  fit.measured = {{{1, 10, 0}, 20}, {{1, 100, 50}, 150}};
  CHECK(evaluate_us(fit, std::vector<double>{1, 10, 0}) == Approx(20));
  // The point is close to the first one, although the third feature is no longer 0.
  CHECK(evaluate_us(fit, std::vector<double>{1, 10.001, 0.001}) == Approx(20).epsilon(1e-3));
}

}  // namespace stretto::sim
