#include "report/noise.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/rng.hpp"
#include "base/statistics.hpp"
#include "report/table.hpp"

using namespace stretto;

namespace {

// `rows` rows of equal steps of 100 ms that scatter by `scatter`, and all by `drift` from turn to turn.
std::vector<std::vector<double>> measured(std::uint64_t seed, std::size_t rows, std::size_t turns, double scatter,
                                          double drift = 0) {
  std::vector<std::vector<double>> steps(rows);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const double speed = 1 + drift * normal(seed, 99, turn);
    for (std::size_t row = 0; row < rows; ++row)
      steps[row].push_back(100 * speed * (1 + scatter * normal(seed, row, turn)));
  }
  return steps;
}

}  // namespace

TEST_CASE("95 of 100 differences between runs of equal schedules are below the noise floor", "[report]") {
  int below = 0, in_interval = 0;
  double floors = 0;
  constexpr int kTrials = 60;
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    const auto rows = measured(trial, 5, 9, 0.02);
    const NoiseFloor floor = noise_floor({rows.begin(), rows.end() - 1});
    // The last row is a run that was not used for the floor.
    below += 100 * std::abs(median(rows[4]) / median(rows[0]) - 1) < floor.pct;
    in_interval += floor.low_pct <= floor.pct && floor.pct <= floor.high_pct;
    floors += floor.pct / kTrials;
  }
  CHECK(below >= 0.85 * kTrials);
  CHECK(in_interval >= 0.8 * kTrials);
  // The median of 9 scatters by 2 % · 1.25 / 3, a difference of two by 1.4 times that, and 95 % lie within twice.
  CHECK(floors == Approx(2.3).epsilon(0.3));
}

TEST_CASE("what slows all rows of a turn equally is no noise between them", "[report]") {
  double alone = 0, drifting = 0;
  for (std::uint64_t trial = 0; trial < 10; ++trial) {
    alone += noise_floor(measured(trial, 3, 9, 0.005)).pct;
    drifting += noise_floor(measured(trial, 3, 9, 0.005, 0.2)).pct;
  }
  CHECK(drifting < 3 * alone);
}

TEST_CASE("two copies of one schedule that differ are noise, however steady each is", "[report]") {
  auto rows = measured(1, 3, 5, 0);
  for (double& step : rows.back()) step = 104;
  CHECK(noise_floor(rows).pct == Approx(100 * 4 / 102.0));
}

TEST_CASE("two turns have no noise floor", "[report]") {
  CHECK(std::isnan(noise_floor(measured(1, 2, 2, 0.01)).pct));
  CHECK_FALSE(std::isnan(noise_floor(measured(1, 2, 3, 0.01)).pct));
}
