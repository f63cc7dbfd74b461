#include "report/advice.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace stretto {
namespace {

Advice advice(double plain_ms, double step_ms, double unsure_pct) {
  Advice advice;
  advice.mode = "a";
  advice.plain.step_ms = plain_ms;
  advice.step.step_ms = step_ms;
  advice.set_unsure(unsure_pct);
  return advice;
}

}  // namespace

TEST_CASE("a mode is used or avoided when its difference is beyond doubt", "[report]") {
  CHECK(advice(100, 94, 5).verdict() == Verdict::use);
  CHECK(advice(100, 96, 5).verdict() == Verdict::benchmark_first);
  CHECK(advice(100, 104, 5).verdict() == Verdict::benchmark_first);
  CHECK(advice(100, 106, 5).verdict() == Verdict::avoid);
  // A tiny saving gives no advice, however certain it is.
  CHECK(advice(100, 99.6, 0).verdict() == Verdict::benchmark_first);
  CHECK(advice(100, 99.4, 0).verdict() == Verdict::use);
}

TEST_CASE("a mode that no longer fits is avoided, one that is off says why", "[report]") {
  Advice fast = advice(100, 50, 1);
  fast.step.fits = false;
  CHECK(fast.verdict() == Verdict::avoid);
  CHECK(fast.why().find("does not fit") == 0);
  fast.plain.fits = false;  // the mode is no worse in this
  CHECK(fast.verdict() == Verdict::use);
  fast.off_because = "size is 1";
  CHECK(fast.verdict() == Verdict::off);
  CHECK(fast.why() == "size is 1");
}

TEST_CASE("advice says what is hidden and what compute and memory pay", "[report]") {
  Advice a = advice(100, 90, 2);
  a.plain.breakdown.compute = 60;
  a.step.breakdown.compute = 63;
  a.plain.traffic = {4 << 20, 1 << 20, 0};
  a.step.traffic = {4 << 20, 3 << 20, 16};
  a.plain.peak_bytes = 1000;
  a.step.peak_bytes = 1000 + (2 << 20);
  a.because = "stages wait";
  const std::string why = a.why();
  for (const char* part :
       {"; stages wait", "saves 10.0 ± 2.0 %", "3.000 MiB of 4.000 MiB", "plain 1.000 MiB", "+5.0 %", "16 SMs"}) {
    INFO(why);
    CHECK(why.find(part) != std::string::npos);
  }
  const nlohmann::json json = advice_json(a);
  CHECK(json.at("memory_delta_bytes") == 2 << 20);
  CHECK(json.at("basis") == "expected");
  CHECK(json.at("verdict") == "use");
  CHECK(json.at("hidden_bytes") == 3 << 20);
}

TEST_CASE("advice names what decides where its interval is known", "[report]") {
  Advice a = advice(100, 78, 0);
  a.low_pct = 12, a.high_pct = 31;
  a.least_pct = 5;
  a.decides = "your release's host decides";
  CHECK(a.verdict() == Verdict::use);
  CHECK(a.why() == "saves 12 to 31 % (22.0 expected): your release's host decides");
  a.low_pct = -3;
  CHECK(a.verdict() == Verdict::benchmark_first);
  a.step.step_ms = 120;
  a.low_pct = -26, a.high_pct = -11;
  CHECK(a.verdict() == Verdict::avoid);
  CHECK(a.why() == "costs 11 to 26 % (20.0 expected): your release's host decides");
  a.step.step_ms = 104;  // two stacks differ by as much, so that no interval makes it certain
  a.low_pct = -5, a.high_pct = -3;
  CHECK(a.verdict() == Verdict::benchmark_first);
  const nlohmann::json json = advice_json(a);
  CHECK(json.at("saved_low_pct") == -5);
  CHECK(json.at("unsure_pct") == 1);
  CHECK(json.at("decides") == "your release's host decides");
  CHECK(advice_json(advice(1, 1, 0)).at("decides").is_null());
}

TEST_CASE("measured advice knows nothing without a noise floor", "[report]") {
  Comparison comparison;
  comparison.rows.resize(2);
  comparison.rows[0].mode = "plain";
  comparison.rows[0].measured_ms = {100};
  comparison.rows[1].mode = "a";
  comparison.rows[1].measured_ms = {80};
  CHECK(measured_advice(comparison, comparison.rows[1]).verdict() == Verdict::benchmark_first);
  comparison.noise[1] = {5, 4, 6};
  const Advice a = measured_advice(comparison, comparison.rows[1]);
  CHECK(a.verdict() == Verdict::use);
  CHECK(a.is_measured);
  CHECK(a.saved_pct() == Approx(20));
}

}  // namespace stretto
