#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace stretto {

// A block of fp8 numbers: bytes of e4m3 (OCP 8-bit floating point: sign, 4 bits of exponent with bias 7, 3 of mantissa;
// the largest is 448, 0x7f is NaN) and their scale, a byte that stands for 2^(byte − 127) (e8m0 of the OCP microscaling
// specification; 255 is NaN).
constexpr std::uint8_t kNanScale = 255;

// The smallest power of two for which amax / scale is at most 448; a block with a NaN or an infinity has none.
inline std::uint8_t scale_of_block(float amax) {
  if (!(amax <= std::numeric_limits<float>::max())) return kNanScale;
  constexpr std::uint32_t kLargestMantissa = 0x600000;  // of 448 = 1.75 · 2^8
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffff) > kLargestMantissa ? 1 : 0);
  return static_cast<std::uint8_t>(std::max(exponent, 0));
}
inline float value_of_scale(std::uint8_t scale) {
  if (scale == kNanScale) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : static_cast<std::uint32_t>(scale) << 23);
}
// 2^(127 − scale), of a number: exact.
inline float inverse_of_scale(std::uint8_t scale) {
  return std::bit_cast<float>((254u - static_cast<std::uint32_t>(scale)) << 23);
}

// Round to nearest, ties to even, of a finite number; what is above 448 becomes 448.
inline std::uint8_t to_e4m3(float value) {
  constexpr std::uint32_t kLargest = 0x7e;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 31 << 7;
  const float size = std::fabs(value);
  if (size < 0.015625f)  // 2^-6, below which steps are of 2^-9
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(std::nearbyintf(size * 512)));
  const std::uint32_t rounded = ((bits & 0x7fffffffu) + 0x7ffffu + ((bits >> 20) & 1u)) >> 20;
  return static_cast<std::uint8_t>(sign | std::min(rounded - (120u << 3), kLargest));
}
inline float from_e4m3(std::uint8_t byte) {
  const std::uint32_t exponent = (byte >> 3) & 15u, mantissa = byte & 7u;
  if ((byte & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0 ? static_cast<float>(mantissa) / 512
                                   : std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
  return (byte & 0x80) != 0 ? -size : size;
}

}  // namespace stretto
