#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace stretto {

// bfloat16: the upper half of an IEEE binary32. Storage only; arithmetic is done in f32.
struct Bf16 {
  std::uint16_t bits = 0;
};

// Returns the equal f32; there is no rounding.
inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

// Round to nearest, ties to even; overflow gives infinity; a NaN stays a (quiet) NaN with its sign.
inline Bf16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quieted = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quieted : rounded)};
}

// Rounds an f64 once: the intermediate f32 is rounded to odd (Boldo & Melquiond 2008), which keeps the information on
// which side of a tie the value lies.
inline Bf16 to_bf16(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return to_bf16(nearest);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return to_bf16(std::bit_cast<float>(bits | 1u));
}

// An f32 number as two halves of its bits: the upper one rounded to nearest, ties away from zero, and the lower one,
// whose sign says whether the upper one was rounded away from zero.
struct Halves {
  Bf16 upper;
  std::int16_t lower = 0;
};
inline Halves halves_of(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return {{static_cast<std::uint16_t>((bits + 0x8000u) >> 16)}, static_cast<std::int16_t>(bits & 0xffffu)};
}
inline float float_of(Bf16 upper, std::int16_t lower) {
  const std::uint32_t high = static_cast<std::uint32_t>(upper.bits) - (lower < 0 ? 1u : 0u);
  return std::bit_cast<float>((high << 16) | static_cast<std::uint16_t>(lower));
}
// Returns the same where the upper half has been widened.
inline float float_of(float upper, std::int16_t lower) {
  return float_of(Bf16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(upper) >> 16)}, lower);
}

}  // namespace stretto
