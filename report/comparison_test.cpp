#include "report/comparison.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "report/comparison_screen.hpp"

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
  comparison.rows = {row("plain", 1, 100, {100}), row("a", 1, 100, {110}),  // equal predictions: nothing to rank
                     row("plain", 2, 100, {100}), row("a", 2, 90, {80}),   row("b", 2, 95, {82}),
                     row("plain", 4, 100, {100}), row("a", 4, 101, {80})};
  const Comparison::Ranking ranking = comparison.ranking();
  CHECK(ranking.pairs == 3);  // at 2: plain-a, plain-b, but not a-b, which are 2.5 % apart; at 4: plain-a
  CHECK(ranking.right == 2);
}

TEST_CASE("a row says whether its difference from the plain schedule is beyond the noise floor", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 2, 100, {100}), row("a", 2, 90, {95}), row("b", 2, 90, {94}), row("plain", 4, 1, {1}),
                     row("a", 4, 1, {2})};
  comparison.noise[2] = {5.5, 4, 7};
  CHECK_FALSE(comparison.is_beyond_noise(comparison.rows[0]));
  CHECK(comparison.is_beyond_noise(comparison.rows[1]) == false);
  CHECK(comparison.is_beyond_noise(comparison.rows[2]) == true);
  CHECK_FALSE(comparison.is_beyond_noise(comparison.rows[4]));  // the floor is not known
  const nlohmann::json json = comparison_json(comparison);
  CHECK(json.at("rows").at(0).at("beyond_noise").is_null());
  CHECK(json.at("rows").at(1).at("beyond_noise") == false);
  CHECK(json.at("noise_pct") == 5.5);
}

TEST_CASE("the first screen ranks modes beyond the noise, and is short however many rows there are", "[report]") {
  Comparison comparison;
  for (std::int64_t ranks = 2; ranks <= 64; ranks *= 2) {
    comparison.rows.push_back(row("plain", ranks, 110, {100, 100, 100}));
    comparison.rows.push_back(row("fast", ranks, 72, {80, 80, 80}));
    comparison.rows.push_back(row("equal", ranks, 108, {99, 99, 99}));
    comparison.noise[ranks] = {5, 4, 6};
    comparison.notes.push_back("a note");
  }
  const std::string text = comparison_screen(comparison, {});
  CHECK(text.starts_with("Predictions are 9.7 % off, worst 10.0 %; noise of this machine: 5.0 %. "));
  CHECK(text.find("on 2 ranks use fast: steps 20 % shorter\n") != std::string::npos);
  CHECK(text.find("9 more rows: --verbose\n") != std::string::npos);
  CHECK(text.find("4 more notes: --verbose\n") != std::string::npos);
  CHECK(text.find("use equal") == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 23);
}

TEST_CASE("a schedule that several modes give is one row, and each mode is in the JSON", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 1, 100, {110}), row("plain", 2, 100, {100})};
  comparison.rows[0].equal_modes = {"a", "b"};
  CHECK(comparison.mean_abs_error_pct() == Approx(50 * (1 - 100 / 110.0)));
  const Table table = comparison_table(comparison);
  REQUIRE(table.rows() == 4);
  CHECK(table.cells()[1][1] == "a = plain");
  CHECK(table.cells()[1][3].empty());
  const nlohmann::json rows = comparison_json(comparison).at("rows");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].at("same_as").is_null());
  CHECK(rows[2].at("mode") == "b");
  CHECK(rows[2].at("same_as") == "plain");
  CHECK(rows[2].at("measured_ms") == 110);
}

TEST_CASE("what is not known is null and a dash, never a number", "[report]") {
  Comparison comparison;
  const auto check = [&](const nlohmann::json& json, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      INFO(key);
      CHECK(json.at(key).is_null());
    }
  };
  check(comparison_json(comparison),
        {"noise_pct", "noise_low_pct", "noise_high_pct", "mean_abs_error_pct", "worst_abs_error_pct",
         "mean_abs_error_as_calibrated_pct", "sgemm_GFLOPs", "step_GFLOPs"});
  comparison.rows = {row("plain", 2, 100, {100, 90}), row("a", 2, 90, {95, 94})};
  comparison.noise[2] = noise_floor({{100, 90}, {95, 94}});
  const nlohmann::json json = comparison_json(comparison);
  check(json, {"noise_pct", "sgemm_GFLOPs"});
  check(json.at("rows").at(1), {"loss", "beyond_noise"});
  CHECK(json.at("rows").at(1).at("turns") == 2);
  CHECK(comparison_table(comparison).cells()[1].back() == "-");
  CHECK_THAT(comparison_text(comparison), Catch::Contains("noise floor not known") && !Catch::Contains("nan"));
}

TEST_CASE("on a busy machine there are neither errors nor advice, but what was busy and what to do", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 1, 100, {100}), row("plain", 2, 304, {100, 101, 99}), row("a", 2, 90, {50, 51, 49})};
  comparison.noise[2] = {5, 4, 7};
  comparison.rows[1].lost_pct = 9;
  CHECK_FALSE(comparison.is_busy());
  CHECK_THAT(comparison_text(comparison), !Catch::Contains("busy"));
  CHECK_THAT(comparison_text(comparison), Catch::Contains("+204.0%") && Catch::Contains("use"));
  comparison.rows[1].lost_pct = 97;
  CHECK(comparison.is_busy());
  CHECK_THAT(comparison_remarks(comparison).front(), Catch::Contains("busy") && Catch::Contains("97 ms"));

  // Counters of the processors say it where the spinning threads do not.
  comparison.rows[1].lost_pct = 0;
  comparison.loads = {{1, {2, 0.5, 0, 5.1, {"cc1plus"}}}, {2, {2, 1.25, 0, 5.1, {"cc1plus", "python3"}}}};
  CHECK(comparison.taken_pct() == Approx(100 * 1.25 / 0.75));
  CHECK_THAT(
      comparison_remarks(comparison).front(),
      Catch::Contains("other programs (cc1plus, python3) used 1.25 of its 2 cores while 2 ranks ran (load average "
                      "5.1)") &&
          Catch::Contains("167 ms") && Catch::Contains("run this again"));
  const std::string text = comparison_text(comparison);
  CHECK_THAT(text, !Catch::Contains("204") && !Catch::Contains("mean error") && !Catch::Contains("explains"));
  CHECK_THAT(text, !Catch::Contains("advice  ") && !Catch::Contains(" use "));
  const nlohmann::json json = comparison_json(comparison);
  CHECK(json.at("busy") == true);
  CHECK(json.at("busy_because") == comparison_remarks(comparison).front());
  CHECK(json.at("mean_abs_error_pct").is_null());
  for (const nlohmann::json& each : json.at("rows"))
    for (const char* key : {"error_pct", "beyond_noise", "advice"}) CHECK(each.at(key).is_null());
  CHECK(json.at("rows").at(1).at("measured_ms") == 100);
  CHECK(json.at("loads").at(1).at("programs") == std::vector<std::string>{"cc1plus", "python3"});
  comparison.loads[2].others_cores = 0.1;  // one rank leaves a core for half a core of others
  CHECK_FALSE(comparison.is_busy());
}

TEST_CASE("advice is on rows whose difference is beyond the noise", "[report]") {
  Comparison comparison;
  comparison.rows = {row("plain", 2, 100, {100, 100, 100}), row("fast", 2, 90, {80, 80, 80}),
                     row("same", 2, 90, {98, 98, 98})};
  comparison.noise[2] = {5, 4, 7};
  const std::string text = comparison_text(comparison);
  CHECK_THAT(text, Catch::Contains("saves 20.0 ± 5.0 %") && !Catch::Contains("benchmark first"));
  CHECK_THAT(text, Catch::Contains("no advice on 1 row: the difference from the plain schedule is within the noise"));
}

}  // namespace stretto
