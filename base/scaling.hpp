#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/bf16.hpp"
#include "base/fp8.hpp"

namespace stretto {

// Scales of tensors and blocks in low precision, bit for bit as TransformerEngine computes them in f32. A scale
// multiplies a number before the cast, and its inverse multiplies the product. `amax` is the largest magnitude of the
// tensor or block, NaN when it holds one. All functions are pure.

// Returns |x| if it is larger than amax or NaN: the next amax. A NaN stays.
constexpr float larger_magnitude(float amax, float x) {
  const float size = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  return size <= amax || amax != amax ? amax : size;
}

// Returns a scale, or the largest f32 in place of infinity.
constexpr float finite(float scale) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return scale > kMax ? kMax : scale;
}

// Current scaling, of a tensor, or of a block with powers of two: largest / amax, with the mantissa cleared (rounded
// down) for a power of two; 1 where amax is 0, infinite or NaN. `largest` is the largest number of the format.
// (compute_scale_from_amax, common/recipe/recipe_common.cuh.)
constexpr float scale_of_amax(float amax, float largest, bool power_of_two = false) {
  if (!(amax > 0) || amax > std::numeric_limits<float>::max()) return 1;
  const float scale = finite(largest / amax);
  return power_of_two ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xff800000u) : scale;
}

// Delayed scaling: largest / amax / 2^margin, where amax comes from the history; where amax is 0, infinite or NaN the
// scale stays as it is. |margin| ≤ 64. (_default_sf_compute, pytorch/quantization.py.)
constexpr float delayed_scale(float amax, float old, float largest, int margin) {
  if (!(amax > 0) || amax > std::numeric_limits<float>::max()) return old;
  return finite(largest / amax / std::bit_cast<float>(static_cast<std::uint32_t>(127 + margin) << 23));
}

// MXFP8: the E8M0 of a block of kMxBlock numbers along the axis of the sum is amax · (1 / largest), rounded up. Codes
// are casts of x · inverse_of_scale. (common/util/ptx.cuh; the OCP text rounds down.)
constexpr int kMxBlock = 32;
constexpr std::uint8_t mx_scale(float amax, float largest) { return to_e8m0(amax * (1.0f / largest)); }

// Blockwise scaling: scale_of_amax with powers of two, of 1 × kBlockwise numbers of activations and gradients, and of
// kBlockwise × kBlockwise of weights.
constexpr int kBlockwise = 128;

// NVFP4 has a scale of the tensor and an e4m3 for each block of kNvBlock numbers (weights: kNvBlock × kNvBlock).
// (pytorch/custom_recipes/reference_nvfp4.py.)
constexpr int kNvBlock = 16;
struct NvTensorScale {
  float multiplier = 1;  // block's amax × this = its e4m3, before the cast
  float inverse = 1;     // a number is e2m1 · e4m3 · inverse
};
constexpr NvTensorScale nv_tensor_scale(float amax) {
  const float scale = finite(amax > 0 ? E4m3::kMax * E2m1::kMax / amax : 1.0f);
  return {scale * (1.0f / E2m1::kMax), 1.0f / scale};
}
struct NvBlockScale {
  std::uint8_t code = 0;  // e4m3
  float factor = 1;       // x · factor, clamped to ±6, is cast
};
constexpr NvBlockScale nv_block_scale(float amax, const NvTensorScale& of_tensor) {
  const std::uint8_t code = to_code<E4m3>(amax * of_tensor.multiplier);  // saturates at 448
  return {code, finite(1.0f / (from_code<E4m3>(code) * of_tensor.inverse))};
}

// The Hadamard transform of 16 numbers that NVFP4 applies along the tokens before a weight gradient: y = x · diag(sign)
// · H / 4, H of Sylvester, with TransformerEngine's signs (get_wgrad_sign_vector). It is orthogonal, so it cancels in a
// product of two transformed operands. Sums are in f32 in order of i; each y is rounded to bf16, the type of the
// operands, as TransformerEngine's reference does it. x and y may not overlap.
constexpr std::uint32_t kHadamardSigns = 0xd7e8;  // bit i: sign i is −1
inline constexpr auto kSignedHadamard = [] {      // [i][j] diag(sign) · H
  std::array<std::array<float, kNvBlock>, kNvBlock> matrix{};
  for (std::uint32_t i = 0; i < kNvBlock; ++i)
    for (std::uint32_t j = 0; j < kNvBlock; ++j)
      matrix[i][j] =
          ((static_cast<std::uint32_t>(std::popcount(i & j)) ^ (kHadamardSigns >> i)) & 1u) != 0 ? -1.0f : 1.0f;
  return matrix;
}();
inline void hadamard16(const float* x, float* y) {
  std::array<float, kNvBlock> sums{};
  for (std::size_t i = 0; i < kNvBlock; ++i)
    for (std::size_t j = 0; j < kNvBlock; ++j) sums[j] += kSignedHadamard[i][j] * x[i];
  for (std::size_t j = 0; j < kNvBlock; ++j) y[j] = to_float(to_bf16(sums[j] * 0.25f));
}

}  // namespace stretto
