#include "report/comparison.hpp"

#include <catch2/catch.hpp>

namespace stretto {
namespace {

ComparisonRow row(const std::string& mode, std::int64_t ranks, double predicted_ms, std::vector<double> measured_ms) {
  ComparisonRow row;
  row.mode = mode;
  row.ranks = ranks;
  row.predicted_ms = predicted_ms;
  row.measured_ms = std::move(measured_ms);
  return row;
}

}  // namespace

TEST_CASE("errors are against the median, saved times against the plain row of equal ranks", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 2, 110, {100, 90, 300}), row("fast", 2, 72, {80, 80, 80}),
                     row("plain", 4, 200, {200, 200, 200})};
  CHECK(comparison.rows[0].error_pct() == Approx(10));
  CHECK(comparison.rows[1].error_pct() == Approx(-10));
  CHECK(comparison.mean_abs_error_pct() == Approx(20.0 / 3));
  CHECK(comparison.worst_abs_error_pct() == Approx(10));
  CHECK(comparison.saved_predicted_ms(comparison.rows[1]) == Approx(38));
  CHECK(comparison.saved_measured_ms(comparison.rows[1]) == Approx(20));
  CHECK(comparison.saved_measured_ms(comparison.rows[2]) == 0);
}

TEST_CASE("only pairs of schedules that clearly differ are ranked", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 1, 100, {100}), row("a", 1, 100, {110}),  // the same schedule: noise
                     row("plain", 2, 100, {100}), row("a", 2, 90, {80}),   row("b", 2, 95, {82}),
                     row("plain", 4, 100, {100}), row("a", 4, 101, {80})};
  const Comparison::Ranking ranking = comparison.ranking();
  CHECK(ranking.pairs == 3);  // at 2: plain-a, plain-b, and not a-b, 2.5 % apart; at 4: plain-a
  CHECK(ranking.right == 2);
}

}  // namespace stretto
