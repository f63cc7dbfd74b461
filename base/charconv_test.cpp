#include "base/charconv.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>

namespace stretto {
namespace {

TEST_CASE("both functions read equal numbers") {
  for (const std::string text : {"0",
                                 "-0",
                                 "1",
                                 "1.5",
                                 ".5",
                                 "5.",
                                 "1e3",
                                 "1e",
                                 "1e+",
                                 "1e-3x",
                                 "+1",
                                 "-+1",
                                 " 1",
                                 "- 1",
                                 "",
                                 "-",
                                 ".",
                                 "x",
                                 "0x10",
                                 "-0x1p3",
                                 "1e400",
                                 "-1e400",
                                 "1e-400",
                                 "4.9e-324",
                                 "2.2250738585072011e-308",
                                 "0.1",
                                 "9007199254740993",
                                 "123456789012345678901234567890",
                                 "inf",
                                 "-infinity",
                                 "nan",
                                 "1,5",
                                 "0.30000000000000004",
                                 "1_000"}) {
    double expected = 7, got = 7;
    const auto theirs = std::from_chars(text.data(), text.data() + text.size(), expected);
    const auto ours = from_chars_by_strtod(text.data(), text.data() + text.size(), got);
    INFO(text);
    CHECK(ours.ec == theirs.ec);
    CHECK(ours.ptr - text.data() == theirs.ptr - text.data());
    CHECK((std::isnan(got) ? std::isnan(expected) : std::memcmp(&got, &expected, sizeof got) == 0));
  }
}

TEST_CASE("a number ends where its text ends") {
  const char text[] = "12.75";
  double value = 0;
  CHECK(from_chars_by_strtod(text, text + 4, value).ptr == text + 4);
  CHECK(value == 12.7);
}

TEST_CASE("both functions write a double as the same text") {
  for (const double number : {0.0,
                              -0.0,
                              1.0,
                              1e3,
                              1e4,
                              1e5,
                              12e5,
                              1e22,
                              1e23,
                              123456789012345678.0,
                              0.1,
                              1e-3,
                              1e-4,
                              0.00015,
                              1e-5,
                              -2.5,
                              1.0 / 3,
                              5e-324,
                              1.7976931348623157e308,
                              6.02214076e23,
                              4294967296.0})
    CHECK(shortest_text_by_printf(number) == shortest_text(number));
}

}  // namespace
}  // namespace stretto
