#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace stretto {

// Blocks of fp8 numbers, as fp8_param_gather sends them. A number is a byte of e4m3 (OCP 8-bit floating point: sign, 4
// bits of exponent with bias 7, 3 bits of mantissa; the largest value is 448, and 0x7f and 0xff are NaN). A block
// shares one scale, a byte that stands for 2^(byte − 127) (e8m0 of the OCP microscaling specification; 255 is NaN). A
// value is e4m3 · scale. All functions are pure and exact to the bit, so that the host and a GPU get equal bytes.
constexpr std::uint8_t kNanScale = 255;

// Returns the smallest scale with amax / scale ≤ 448, where `amax` ≥ 0 is the largest magnitude of the block. A block
// that holds a NaN or an infinity gets kNanScale.
inline std::uint8_t scale_of_block(float amax) {
  if (!(amax <= std::numeric_limits<float>::max())) return kNanScale;
  constexpr std::uint32_t kLargestMantissa = 0x600000;  // mantissa bits of 448 = 1.75 · 2^8 as f32
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffff) > kLargestMantissa ? 1 : 0);
  return static_cast<std::uint8_t>(std::max(exponent, 0));
}
// Returns 2^(scale − 127), or NaN for kNanScale. Scale 0 is the subnormal 2^-127.
inline float value_of_scale(std::uint8_t scale) {
  if (scale == kNanScale) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : static_cast<std::uint32_t>(scale) << 23);
}
// Returns 2^(127 − scale), exactly, so that a multiplication replaces the division by the scale. Not for kNanScale.
inline float inverse_of_scale(std::uint8_t scale) {
  return std::bit_cast<float>((254u - static_cast<std::uint32_t>(scale)) << 23);
}

// Rounds a finite number to nearest, ties to even. Magnitudes above 448 become 448.
inline std::uint8_t to_e4m3(float value) {
  constexpr std::uint32_t kLargest = 0x7e;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 31 << 7;
  const float size = std::fabs(value);
  if (size < 0.015625f)  // below 2^-6 numbers are subnormal: multiples of 2^-9
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(std::nearbyintf(size * 512)));
  const std::uint32_t rounded = ((bits & 0x7fffffffu) + 0x7ffffu + ((bits >> 20) & 1u)) >> 20;
  return static_cast<std::uint8_t>(sign | std::min(rounded - (120u << 3), kLargest));
}
// Returns the exact value of an e4m3 byte.
inline float from_e4m3(std::uint8_t byte) {
  const std::uint32_t exponent = (byte >> 3) & 15u, mantissa = byte & 7u;
  if ((byte & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0 ? static_cast<float>(mantissa) / 512
                                   : std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
  return (byte & 0x80) != 0 ? -size : size;
}

}  // namespace stretto
