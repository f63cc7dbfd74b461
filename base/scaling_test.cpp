#include "base/scaling.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/crc32.hpp"

using namespace stretto;

namespace {

// Checksum of fn(amax) for every bf16 without a sign: zero, subnormals, infinity and NaNs too. Expected checksums are
// those of tests/low_precision_reference.py.
template <class Fn>
std::uint32_t checksum_of_amaxes(Fn fn, std::uint32_t end = 0x8000) {
  std::vector<decltype(fn(0.0f))> values;
  for (std::uint32_t bits = 0; bits < end; ++bits) values.push_back(fn(to_float({static_cast<std::uint16_t>(bits)})));
  return crc32(values.data(), values.size() * sizeof values[0]);
}

}  // namespace

TEST_CASE("scales of every amax have the reference's checksums", "[fp8]") {
  const auto of_amax = [](float largest, bool power_of_two) {
    return checksum_of_amaxes([=](float amax) { return scale_of_amax(amax, largest, power_of_two); });
  };
  CHECK(of_amax(E4m3::kMax, false) == 0x0da91691);
  CHECK(of_amax(E4m3::kMax, true) == 0xc7da9897);
  CHECK(of_amax(E5m2::kMax, false) == 0x1ba07db9);
  CHECK(of_amax(E5m2::kMax, true) == 0xe64a6456);
  const auto delayed = [](float largest, int margin) {
    return checksum_of_amaxes([=](float amax) { return delayed_scale(amax, 3.25f, largest, margin); });
  };
  CHECK(delayed(E4m3::kMax, 0) == 0x9eab925e);
  CHECK(delayed(E4m3::kMax, 3) == 0xfd4d2bd0);
  CHECK(delayed(E5m2::kMax, 0) == 0x88a2f976);
  CHECK(delayed(E5m2::kMax, 3) == 0x0ba3c24e);
  CHECK(checksum_of_amaxes([](float amax) { return mx_scale(amax, E4m3::kMax); }) == 0x4a93c760);
  CHECK(checksum_of_amaxes([](float amax) { return mx_scale(amax, E5m2::kMax); }) == 0x987ad092);
  CHECK(checksum_of_amaxes([](float amax) { return nv_tensor_scale(amax).multiplier; }) == 0x13019963);
  CHECK(checksum_of_amaxes([](float amax) { return nv_tensor_scale(amax).inverse; }) == 0x76057044);
  const NvTensorScale of_tensor = nv_tensor_scale(5.5f);
  CHECK(checksum_of_amaxes([&](float amax) { return nv_block_scale(amax, of_tensor).code; }) == 0xd4c2879c);
  CHECK(checksum_of_amaxes([&](float amax) { return nv_block_scale(amax, of_tensor).factor; }, 0x7f81) == 0x9a47636a);
}

TEST_CASE("scales of amaxes that are no numbers", "[fp8]") {
  for (const float amax : {0.0f, INFINITY, NAN}) {
    CHECK(scale_of_amax(amax, E4m3::kMax) == 1);
    CHECK(delayed_scale(amax, 7, E4m3::kMax, 0) == 7);
  }
  CHECK(scale_of_amax(1e-44f, E4m3::kMax) == std::numeric_limits<float>::max());
  CHECK(delayed_scale(1e-44f, 7, E4m3::kMax, 0) == std::numeric_limits<float>::max());
  CHECK(scale_of_amax(1e-44f, E4m3::kMax, true) == 0x1p127f);
  CHECK(mx_scale(0, E4m3::kMax) == 0);
  CHECK(larger_magnitude(2, -3) == 3);
  CHECK(larger_magnitude(3, -2) == 3);
  CHECK(std::isnan(larger_magnitude(3, NAN)));
  CHECK(std::isnan(larger_magnitude(NAN, 3)));
}

// The scale with which blocks are sent is that of MXFP8 wherever amax is a bf16.
TEST_CASE("MXFP8's scales are those of blocks that are sent", "[fp8]") {
  int different = 0;
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float amax = to_float({static_cast<std::uint16_t>(bits)});
    different += mx_scale(amax, E4m3::kMax) != scale_of_block(amax);
  }
  CHECK(different == 0);
}

TEST_CASE("the Hadamard transform is orthogonal", "[fp8]") {
  for (int i = 0; i < kNvBlock; ++i) {
    float unit[kNvBlock] = {}, row[kNvBlock], norm = 0;
    unit[i] = 1;
    hadamard16(unit, row);
    for (const float y : row) norm += y * y;
    CHECK(norm == 1);
    for (int other = 0; other < i; ++other) {
      float dot = 0, unit_2[kNvBlock] = {}, row_2[kNvBlock];
      unit_2[other] = 1;
      hadamard16(unit_2, row_2);
      for (int j = 0; j < kNvBlock; ++j) dot += row[j] * row_2[j];
      CHECK(dot == 0);
    }
  }
  float ones[kNvBlock], y[kNvBlock];
  for (float& one : ones) one = 1;
  hadamard16(ones, y);
  CHECK(y[0] == -1);  // 6 signs are +, 10 are −
}
