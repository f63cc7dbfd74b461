#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace stretto {

// Numbers of 8 and 4 bits, and scales of one byte. All functions are pure and exact to the bit, and constexpr, so that
// kernels of a GPU call them too: the host and a GPU get equal codes. base/scaling.hpp has the scales of tensors and
// blocks.

// A format: sign, `kExponent` bits of exponent with `kBias`, `kMantissa` bits of mantissa; a code is the low bits of a
// byte. kLargest is the code of the largest number and kNan the code that a NaN becomes.
// e4m3 and e5m2: OCP 8-bit floating point specification; e4m3 has no infinity, 0x7f and 0xff are NaN; e5m2 has the
// infinities 0x7c and 0xfc, and NaNs above them. e2m1: OCP microscaling specification, 0 0.5 1 1.5 2 3 4 6, neither
// infinity nor NaN (a NaN becomes 6, as TransformerEngine's references cast it).
struct E4m3 {
  static constexpr int kExponent = 4, kMantissa = 3, kBias = 7;
  static constexpr std::uint8_t kLargest = 0x7e, kNan = 0x7f;
  static constexpr float kMax = 448;
};
struct E5m2 {
  static constexpr int kExponent = 5, kMantissa = 2, kBias = 15;
  static constexpr std::uint8_t kLargest = 0x7b, kNan = 0x7f;
  static constexpr float kMax = 57344;
};
struct E2m1 {
  static constexpr int kExponent = 2, kMantissa = 1, kBias = 1;
  static constexpr std::uint8_t kLargest = 0x7, kNan = 0x7;
  static constexpr float kMax = 6;
};

template <class F>
constexpr int kSignShift = F::kExponent + F::kMantissa;
// A number below this is subnormal: a multiple of 2^(1 − kBias − kMantissa).
template <class F>
constexpr float kLeastNormal = std::bit_cast<float>(static_cast<std::uint32_t>(128 - F::kBias) << 23);
template <class F>  // subnormal number × this = its code
constexpr float kSubnormalSteps = std::bit_cast<float>(static_cast<std::uint32_t>(126 + F::kBias + F::kMantissa) << 23);

// Rounds to nearest, ties to even. Larger magnitudes than the largest number, infinities too, become the largest
// number; −0 keeps its sign; a NaN becomes kNan, without its sign.
template <class F>
constexpr std::uint8_t to_code(float value) {
  constexpr int kDropped = 23 - F::kMantissa;  // bits of an f32's mantissa that the format lacks
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), size = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 31 << kSignShift<F>;
  // The sum's mantissa is the code, because adding 2^23 rounds to a whole number.
  const float steps = std::bit_cast<float>(size) * kSubnormalSteps<F>;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(steps + 8388608.0f) & 0xffu;
  const std::uint32_t rounded = (size + ((1u << (kDropped - 1)) - 1) + ((size >> kDropped) & 1u)) >> kDropped;
  const std::uint32_t normal =
      std::min<std::uint32_t>(rounded - (static_cast<std::uint32_t>(127 - F::kBias) << F::kMantissa), F::kLargest);
  // Masks in place of branches, so that loops over numbers are vectorised.
  const std::uint32_t is_subnormal =
                          0u - static_cast<std::uint32_t>(size < std::bit_cast<std::uint32_t>(kLeastNormal<F>)),
                      is_nan = 0u - static_cast<std::uint32_t>(size > 0x7f800000u);
  const std::uint32_t code = (subnormal & is_subnormal) | (normal & ~is_subnormal) | sign;
  return static_cast<std::uint8_t>((F::kNan & is_nan) | (code & ~is_nan));
}

// Rounds up in magnitude with probability (|value| − lower) / (upper − lower), down otherwise, where lower and upper
// are the neighbouring numbers and `random` is one of 2^32 equally likely words: up when random / 2^32 is less than
// that. Otherwise as to_code.
template <class F>
constexpr std::uint8_t to_code_stochastically(float value, std::uint32_t random) {
  constexpr int kDropped = 23 - F::kMantissa;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return F::kNan;
  std::uint32_t code = 0;
  std::uint64_t up_below = 0;  // 2^32 · probability of rounding up, rounded up to a whole number
  if (std::bit_cast<float>(size) < kLeastNormal<F>) {
    const float steps = std::bit_cast<float>(size) * kSubnormalSteps<F>;
    code = static_cast<std::uint32_t>(steps);
    const float exact = (steps - static_cast<float>(code)) * 4294967296.0f;
    up_below = static_cast<std::uint64_t>(exact);
    if (static_cast<float>(up_below) < exact) ++up_below;
  } else {
    code = (size >> kDropped) - (static_cast<std::uint32_t>(127 - F::kBias) << F::kMantissa);
    up_below = std::uint64_t{size & ((1u << kDropped) - 1)} << (32 - kDropped);
  }
  if (code >= F::kLargest)
    code = F::kLargest;
  else if (random < up_below)
    ++code;
  return static_cast<std::uint8_t>(bits >> 31 << kSignShift<F> | code);
}

// Returns the exact value of a code; bits above the sign are ignored.
template <class F>
constexpr float from_code(std::uint8_t byte) {
  const std::uint32_t code = byte & ((1u << kSignShift<F>)-1), exponent = code >> F::kMantissa,
                      mantissa = code & ((1u << F::kMantissa) - 1);
  float size = exponent == 0
                   ? static_cast<float>(mantissa) / kSubnormalSteps<F>
                   : std::bit_cast<float>(((exponent + 127 - F::kBias) << 23) | (mantissa << (23 - F::kMantissa)));
  if (code > F::kLargest) {
    const bool is_infinity = F::kLargest + 1 != F::kNan && mantissa == 0;
    size = is_infinity ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return (byte >> kSignShift<F> & 1) != 0 ? -size : size;
}

// [code] from_code(code), for loops over many codes.
template <class F>
inline constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (std::size_t byte = 0; byte < values.size(); ++byte) values[byte] = from_code<F>(static_cast<std::uint8_t>(byte));
  return values;
}();

constexpr std::uint8_t to_e4m3(float value) { return to_code<E4m3>(value); }
constexpr float from_e4m3(std::uint8_t byte) { return from_code<E4m3>(byte); }

// A scale of one byte stands for 2^(byte − 127) (E8M0 of the OCP microscaling specification; 255 is NaN).
constexpr std::uint8_t kNanScale = 255;

// Returns the least E8M0 ≥ value ≥ 0; a NaN gives kNanScale, numbers above 2^127 and infinity give 2^127.
// (TransformerEngine's float_to_e8m0, common/util/ptx.cuh.)
constexpr std::uint8_t to_e8m0(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), exponent = bits >> 23 & 0xffu,
                      mantissa = bits & 0x7fffffu;
  if (bits > 0x7f800000u) return kNanScale;
  if (exponent == 0) return mantissa > 0x400000u ? 1 : 0;  // 2^-127 is subnormal
  return static_cast<std::uint8_t>(std::min(exponent + (mantissa > 0 ? 1u : 0u), 254u));
}
// Returns 2^(scale − 127), or NaN for kNanScale. Scale 0 is the subnormal 2^-127.
constexpr float value_of_scale(std::uint8_t scale) {
  if (scale == kNanScale) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : static_cast<std::uint32_t>(scale) << 23);
}
// Returns 2^(127 − scale), exactly, so that a multiplication replaces the division by the scale.
constexpr float inverse_of_scale(std::uint8_t scale) {
  if (scale >= 254) return std::bit_cast<float>(0x00400000u >> (scale - 254u));  // 2^-127 and 2^-128 are subnormal
  return std::bit_cast<float>((254u - static_cast<std::uint32_t>(scale)) << 23);
}

// Returns the smallest scale with amax / scale ≤ 448, where `amax` ≥ 0 is the largest magnitude of a block that
// ScaledCast sends. A block that holds a NaN or an infinity gets kNanScale.
constexpr std::uint8_t scale_of_block(float amax) {
  if (!(amax <= std::numeric_limits<float>::max())) return kNanScale;
  constexpr std::uint32_t kLargestMantissa = 0x600000;  // mantissa bits of 448 = 1.75 · 2^8 as f32
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffff) > kLargestMantissa ? 1 : 0);
  return static_cast<std::uint8_t>(std::max(exponent, 0));
}

}  // namespace stretto
