#include "calibrate/fit/linear_fit.hpp"

#include <catch2/catch.hpp>

#include "sim/cost/evaluate.hpp"

namespace stretto::calibrate {

// 10 us and 2 us a unit, except one sample that takes half as long again.
TEST_CASE("a corrected fit keeps what was measured; its error is that of what was not", "[calibrate]") {
  std::vector<Sample> samples;
  for (const double units : {10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0})
    samples.push_back({"k", {1, units}, sim::DemandClass::gemm, 10 + 2 * units, 0});
  samples[4].us *= 1.5;
  const sim::CostFit fit = fit_corrected(samples, "a test");
  CHECK(fit.points == 9);
  CHECK(fit.largest_us == 10 + 2 * 2560);
  REQUIRE(fit.measured.size() == 9);
  for (const Sample& sample : samples) CHECK(sim::evaluate_us(fit, sample.features) == Approx(sample.us));
  // When the slow sample is left out, its neighbours predict it as a third faster than it is. With nine samples the
  // 95th percentile lies at 0.6 of the way from the second worst to the worst.
  CHECK(fit.p95_error_pct == Approx(0.6 * 33 + 0.4 * 5).margin(3));
  CHECK(fit.median_error_pct < 5);
}

TEST_CASE("samples of one shape are one point", "[calibrate]") {
  const std::vector<Sample> samples = {{"k", {1, 10}, sim::DemandClass::gemm, 20, 0},
                                       {"k", {1, 10}, sim::DemandClass::gemm, 45, 0}};
  const sim::CostFit fit = fit_corrected(samples, "a test");
  REQUIRE(fit.measured.size() == 1);
  CHECK(fit.measured.front().us == Approx(30));
}

}  // namespace stretto::calibrate
