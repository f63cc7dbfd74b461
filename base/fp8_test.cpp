#include "base/fp8.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/bf16.hpp"
#include "base/crc32.hpp"
#include "base/rng.hpp"

using namespace stretto;

namespace {

float bf16_number(std::uint32_t bits) { return to_float({static_cast<std::uint16_t>(bits)}); }

template <class F>
std::uint32_t checksum_of_all_bf16() {
  std::vector<std::uint8_t> codes;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) codes.push_back(to_code<F>(bf16_number(bits)));
  return crc32(codes.data(), codes.size());
}

// Every value stays itself; a number between two goes to the nearer one, in the middle to the even one.
template <class F>
void check_rounding() {
  constexpr auto sign = static_cast<std::uint8_t>(1 << kSignShift<F>);
  for (std::uint8_t low = 0; low < F::kLargest; ++low) {
    const auto high = static_cast<std::uint8_t>(low + 1);
    const float a = from_code<F>(low), b = from_code<F>(high), middle = (a + b) / 2;
    CHECK(a < b);
    CHECK(to_code<F>(a) == low);
    CHECK(to_code<F>(-b) == (high | sign));
    CHECK(from_code<F>(static_cast<std::uint8_t>(high | sign)) == -b);
    CHECK(to_code<F>(middle) == (low % 2 == 0 ? low : high));
    CHECK(to_code<F>(-middle) == ((low % 2 == 0 ? low : high) | sign));
    CHECK(to_code<F>(std::nextafter(middle, 0.0f)) == low);
    CHECK(to_code<F>(std::nextafter(middle, 1e9f)) == high);
  }
  CHECK(from_code<F>(F::kLargest) == F::kMax);
  for (const float large : {F::kMax * 1.01f, F::kMax * 1e20f, INFINITY}) {
    CHECK(to_code<F>(large) == F::kLargest);
    CHECK(to_code<F>(-large) == (F::kLargest | sign));
  }
  CHECK(to_code<F>(-0.0f) == sign);
  CHECK(to_code<F>(1e-30f) == 0);
  CHECK(to_code<F>(NAN) == F::kNan);
  CHECK(to_code<F>(-NAN) == F::kNan);
  for (int byte = 0; byte < 256; ++byte) {
    const auto code = static_cast<std::uint8_t>(byte);
    CHECK(std::bit_cast<std::uint32_t>(kValues<F>[code]) == std::bit_cast<std::uint32_t>(from_code<F>(code)));
  }
}

}  // namespace

TEST_CASE("codes are what the specifications list, and rounding is to nearest, ties to even", "[fp8]") {
  check_rounding<E4m3>();
  check_rounding<E5m2>();
  check_rounding<E2m1>();
  CHECK(from_code<E4m3>(0x08) == std::exp2(-6.0f));  // the least normal number
  CHECK(from_code<E4m3>(0x01) == std::exp2(-9.0f));
  CHECK(from_code<E4m3>(0xb8) == -1);
  CHECK(std::isnan(from_code<E4m3>(0x7f)));
  CHECK(std::isnan(from_code<E4m3>(0xff)));
  CHECK(from_code<E5m2>(0x01) == std::exp2(-16.0f));
  CHECK(std::isinf(from_code<E5m2>(0x7c)));
  for (const std::uint8_t nan : {0x7d, 0x7e, 0x7f, 0xff}) CHECK(std::isnan(from_code<E5m2>(nan)));
  CHECK(std::vector<float>(kValues<E2m1>.begin(), kValues<E2m1>.begin() + 8) ==
        std::vector<float>{0, 0.5f, 1, 1.5f, 2, 3, 4, 6});
}

// Checksums are those of tests/low_precision_reference.py, which searches in the table of values.
TEST_CASE("codes of all bf16 numbers have the reference's checksums", "[fp8]") {
  CHECK(checksum_of_all_bf16<E4m3>() == 0x452a7ae4);
  CHECK(checksum_of_all_bf16<E5m2>() == 0x62c73e5e);
  CHECK(checksum_of_all_bf16<E2m1>() == 0x19ae53b0);
  std::vector<std::uint8_t> scales;
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) scales.push_back(to_e8m0(bf16_number(bits)));
  CHECK(crc32(scales.data(), scales.size()) == 0x117f9a15);
  std::vector<std::uint8_t> random;
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    std::uint32_t word = bits * 2654435761u + 99;
    word = (word ^ word >> 15) * 2246822519u;
    random.push_back(to_code_stochastically<E2m1>(bf16_number(bits), word ^ word >> 13));
  }
  CHECK(crc32(random.data(), random.size()) == 0xd2093b52);
}

TEST_CASE("E8M0 rounds up", "[fp8]") {
  for (const float value : {1.0f, 1.001f, 1e-30f, 1e-38f, 1.5e-39f, 1e-45f, 0.0f, 0x1p127f}) {
    INFO(value);
    const std::uint8_t scale = to_e8m0(value);
    CHECK(value_of_scale(scale) >= value);
    if (scale > 0) CHECK(value_of_scale(static_cast<std::uint8_t>(scale - 1)) < value);
    CHECK(double(value_of_scale(scale)) * double(inverse_of_scale(scale)) == 1);
  }
  CHECK(to_e8m0(INFINITY) == 254);
  CHECK(to_e8m0(NAN) == kNanScale);
  CHECK(inverse_of_scale(255) == std::ldexp(1.0f, -128));
}

TEST_CASE("a scale of a block that is sent is the smallest power of two that its block fits with", "[fp8]") {
  for (const float amax : {448.0f, 449.0f, 1.0f, 0.875f, 0.876f, 1e-30f, 3e38f, 1e-45f, 0.0f}) {
    INFO(amax);
    const std::uint8_t scale = scale_of_block(amax);
    CHECK(double(amax) <= 448 * double(value_of_scale(scale)));
    if (scale > 0) CHECK(double(amax) > 224 * double(value_of_scale(scale)));
    CHECK(double(value_of_scale(scale)) * double(inverse_of_scale(scale)) == 1);
  }
  CHECK(scale_of_block(INFINITY) == kNanScale);
  CHECK(scale_of_block(NAN) == kNanScale);
}

TEST_CASE("stochastic rounding goes up as often as the number is near the upper neighbour", "[fp8]") {
  constexpr std::uint32_t kHalf = 0x80000000u;
  CHECK(to_code_stochastically<E2m1>(2.5f, kHalf - 1) == 5);  // between 2 and 3: up below one half
  CHECK(to_code_stochastically<E2m1>(2.5f, kHalf) == 4);
  CHECK(to_code_stochastically<E2m1>(-0.125f, kHalf / 2 - 1) == 9);  // between 0 and 0.5
  CHECK(to_code_stochastically<E2m1>(-0.125f, kHalf / 2) == 8);
  CHECK(to_code_stochastically<E2m1>(7.0f, 0) == 7);
  CHECK(to_code_stochastically<E2m1>(INFINITY, 0) == 7);
  CHECK(to_code_stochastically<E2m1>(NAN, ~0u) == 7);
  for (std::uint8_t code = 0; code < 16; ++code)  // numbers of the format stay
    for (const std::uint32_t random : {0u, ~0u})
      CHECK(to_code_stochastically<E2m1>(from_code<E2m1>(code), random) == code);
  constexpr int kDraws = 40'000;
  for (const float value : {0.01f, 0.3f, 0.9f, 1.3f, 1.99f, 2.2f, 3.7f, 5.9f, -4.4f}) {
    double sum = 0;
    for (int i = 0; i < kDraws; ++i)
      sum += from_code<E2m1>(
          to_code_stochastically<E2m1>(value, static_cast<std::uint32_t>(random_bits(3, 4, static_cast<unsigned>(i)))));
    // The standard deviation of one draw is at most 1, half the largest step.
    CHECK(sum / kDraws == Approx(value).margin(4.0 / std::sqrt(double(kDraws))));
  }
}
