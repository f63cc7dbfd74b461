#include "base/bf16.hpp"

#include <catch2/catch.hpp>
#include <limits>

using namespace stretto;

namespace {
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
}  // namespace

TEST_CASE("f32 to bf16 rounds to nearest even", "[bf16]") {
  CHECK(to_bf16(1.0f).bits == 0x3f80);
  CHECK(to_bf16(-2.0f).bits == 0xc000);
  CHECK(to_bf16(from_bits(0x3f807fff)).bits == 0x3f80);  // just below the tie
  CHECK(to_bf16(from_bits(0x3f808000)).bits == 0x3f80);  // tie, even below
  CHECK(to_bf16(from_bits(0x3f808001)).bits == 0x3f81);  // just above
  CHECK(to_bf16(from_bits(0x3f818000)).bits == 0x3f82);  // tie, even above
  CHECK(to_bf16(from_bits(0xbf818000)).bits == 0xbf82);
  CHECK(to_bf16(from_bits(0x3fff8000)).bits == 0x4000);  // carries into the exponent
  CHECK(to_bf16(-0.0f).bits == 0x8000);
  CHECK(to_bf16(from_bits(0x00008001)).bits == 0x0001);  // subnormal
}

TEST_CASE("f32 to bf16 at the ends of the range", "[bf16]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(to_bf16(infinity).bits == 0x7f80);
  CHECK(to_bf16(-infinity).bits == 0xff80);
  CHECK(to_bf16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(to_bf16(from_bits(0x7f7f7fff)).bits == 0x7f7f);
  // NaNs whose set bits are all in the half that is dropped must not become infinity, nor may rounding overflow them.
  for (const std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    CAPTURE(nan);
    CHECK(std::isnan(to_float(to_bf16(from_bits(nan)))));
    CHECK((to_bf16(from_bits(nan)).bits >> 15) == (nan >> 31));
  }
}

TEST_CASE("every bf16 survives the way to f32 and back", "[bf16]") {
  int changed = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float({static_cast<std::uint16_t>(bits)});
    if (!std::isnan(value)) changed += to_bf16(value).bits != bits || to_bf16(static_cast<double>(value)).bits != bits;
  }
  CHECK(changed == 0);
}

TEST_CASE("f64 to bf16 rounds once", "[bf16]") {
  const double tie = static_cast<double>(from_bits(0x3f808000));
  CHECK(to_bf16(tie).bits == 0x3f80);
  CHECK(to_bf16(tie + 1e-12).bits == 0x3f81);  // rounding to the nearest f32 first would give the tie and round down
  const double upper_tie = static_cast<double>(from_bits(0x3f818000));
  CHECK(to_bf16(upper_tie - 1e-12).bits == 0x3f81);
  CHECK(to_bf16(-(tie + 1e-12)).bits == 0xbf81);
  CHECK(to_bf16(1e300).bits == 0x7f80);
  CHECK(to_bf16(-1e300).bits == 0xff80);
  CHECK(to_bf16(1e-300).bits == 0x0000);
  CHECK(std::isnan(to_float(to_bf16(std::numeric_limits<double>::quiet_NaN()))));
}
