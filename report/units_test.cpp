#include "report/units.hpp"

#include <catch2/catch.hpp>
#include <limits>

using namespace stretto;

TEST_CASE("a unit follows the largest value that is shown in it", "[report]") {
  CHECK(time_unit(412.34).text(412.34) == "412.3 ms");
  CHECK(time_unit(0.02).text(0.00512) == "5.12 µs");
  CHECK(time_unit(683'923.6).text(683'923.6) == "683.9 s");
  CHECK(time_unit(0).text(0) == "0.000 ms");
  CHECK(time_unit(200).number(-0.001) == "0.0");
  CHECK(byte_unit(100).text(100) == "100 B");
  CHECK(byte_unit(3 << 20).text(1.5 * (1 << 20)) == "1.500 MiB");
  CHECK(byte_unit(1e18).name == "TiB");
}

TEST_CASE("one value stands in its own unit", "[report]") {
  CHECK(time_text(1645.122) == "1.645 s");
  CHECK(time_text(999.94) == "999.9 ms");
  CHECK(time_text(0.00512) == "5.120 µs");
  CHECK(size_text(64268009600.0) == "59.85 GiB");
  CHECK(size_text(-64268009600.0) == "-59.85 GiB");
  CHECK(count_text(70'553'706'496.0) == "70.55 B");
  CHECK(count_text(124'439'808.0) == "124.4 M");
  CHECK(count_text(512) == "512");
  CHECK(rate_text(478.73e12) == "478.7 TFLOP/s");
  CHECK(rate_text(56.2e9) == "56.20 GFLOP/s");
  CHECK(percent_text(0.4838) == "48.4 %");
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double none : {nan, inf, -inf})
    for (const std::string& text :
         {time_text(none), size_text(none), count_text(none), rate_text(none), percent_text(none)})
      CHECK(text == "–");
}

TEST_CASE("numbers with three significant digits", "[units]") {
  CHECK(with_commas(13068) == "13,068");
  CHECK(with_commas(-999) == "-999");
  CHECK(three_digits(59.004) == "59.0");
  CHECK(three_digits(9.996) == "10.0");
  CHECK(three_digits(1138.6) == "1,139");
  CHECK(three_digits(-1234567) == "-1,234,567");
  CHECK(three_digits(0.5126) == "0.513");
  CHECK(three_digits(0) == "0");
  CHECK(short_time(14380) == "14.4 s");
  CHECK(short_time(0.5126) == "513 µs");
  CHECK(short_count(72911) == "72.9 k");
  CHECK(short_count(512) == "512");
  CHECK(change_text(-0.2518) == "−25.2 %");
  CHECK(change_text(0.03) == "+3.0 %");
  CHECK(change_text(-0.0004) == "0");
}
