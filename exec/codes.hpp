#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>

#include "base/fp8.hpp"
#include "base/scaling.hpp"
#include "exec/operand.hpp"
#include "model/ops/codes.hpp"

namespace stretto::exec {

// The scale of a block as it is stored, its first bytes the low ones of `bits`, and the factor by which the block's
// numbers are multiplied before the cast.
struct BlockScale {
  std::uint32_t bits = 0;
  float factor = 1;
};
// Returns the scale of a block whose largest magnitude is `amax`. `largest` is the format's largest number; of_tensor
// counts with e4m3 scales only. Kernels of a GPU call it too.
constexpr BlockScale block_scale(Scaling scaling, float amax, float largest, const NvTensorScale& of_tensor) {
  if (scaling == Scaling::mx) {
    const std::uint8_t scale = mx_scale(amax, largest);
    return {scale, inverse_of_scale(scale)};
  }
  if (scaling == Scaling::nv || scaling == Scaling::nv_16x16) {
    const NvBlockScale scale = nv_block_scale(amax, of_tensor);
    return {scale.code, scale.factor};
  }
  const float factor = scale_of_amax(amax, largest, true);
  return {std::bit_cast<std::uint32_t>(1 / factor), factor};
}

// A number of a block of kNvBlock numbers, from which Quantise with groups draws the words for rounding it: FNV-1a
// (Fowler, Noll, Vo) of 64 bits over the numbers' bits, a word at a time.
struct BlockHash {
  std::uint64_t value = 0xcbf29ce484222325u;
  constexpr void add(float x) { value = (value ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001b3u; }
};

// A matrix [rows, cols] as codes with their scales, in the layout of code_shape(): where each code and scale is. Does
// not own its memory. Kernels of a GPU call its functions too.
struct Codes {
  std::uint8_t* data = nullptr;
  std::int64_t ld = 0;  // bytes from one stored row to the next
  Dtype format = Dtype::e4m3;
  Scaling scaling = Scaling::tensor;
  ScaledAlong along = ScaledAlong::rows;
  std::int64_t rows = 0, cols = 0;

  constexpr ScalingRule rule() const { return rule_of(scaling); }
  constexpr std::int64_t per_byte() const { return format == Dtype::e2m1x2 ? 2 : 1; }
  // Returns whether the numbers of a column share scales: with `along` columns, or in squares of 128.
  constexpr bool is_stacked() const {
    return scaling == Scaling::block_128x128 || (rule().block > 0 && along == ScaledAlong::columns);
  }
  // Stored rows of scales that follow the rows of a block.
  constexpr std::int64_t scale_rows() const {
    return !is_stacked() ? 0 : scaling == Scaling::block_128x128 ? 1 : rule().scale_bytes * per_byte();
  }
  constexpr std::uint8_t* row(std::int64_t r) const {
    return data + (r + (is_stacked() ? r / rule().block * scale_rows() : 0)) * ld;
  }
  // Returns the bytes of the scale of the code at (r, c); the scaling has scales of blocks. They are not aligned.
  constexpr std::uint8_t* scale_at(std::int64_t r, std::int64_t c) const {
    const ScalingRule of = rule();
    if (!is_stacked()) return row(r) + cols / per_byte() + c / of.block * of.scale_bytes;
    const std::int64_t top = r / of.block * of.block, below = top + of.block < rows ? top + of.block : rows;
    std::uint8_t* first = data + (below + top / of.block * scale_rows()) * ld;
    if (scaling == Scaling::block_128x128) return first + c / of.block * of.block;
    const std::int64_t byte = c * of.scale_bytes, width = cols / per_byte();
    return first + byte / width * ld + byte % width;
  }
  constexpr std::uint32_t scale_bits_at(std::int64_t r, std::int64_t c) const {
    const std::uint8_t* bytes = scale_at(r, c);
    std::uint32_t bits = 0;
    for (std::int64_t i = 0; i < rule().scale_bytes; ++i) bits |= std::uint32_t{bytes[i]} << (8 * i);
    return bits;
  }
  constexpr void put_scale(std::int64_t r, std::int64_t c, std::uint32_t bits) const {
    std::uint8_t* bytes = scale_at(r, c);
    for (std::int64_t i = 0; i < rule().scale_bytes; ++i) bytes[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }
  // Returns the scale itself: a code × scale (× the tensor's factor) is the number.
  constexpr float scale_of(std::int64_t r, std::int64_t c) const {
    const std::uint32_t bits = scale_bits_at(r, c);
    if (scaling == Scaling::mx) return value_of_scale(static_cast<std::uint8_t>(bits));
    if (rule().scale_bytes == 1) return from_code<E4m3>(static_cast<std::uint8_t>(bits));
    return std::bit_cast<float>(bits);
  }
};

// Returns the codes of an operand, which is stored as code_shape() says.
inline Codes codes_of(const Operand& operand, Scaling scaling, ScaledAlong along, std::int64_t rows,
                      std::int64_t cols) {
  [[maybe_unused]] const CodeShape shape = code_shape(operand.dtype, scaling, along, rows, cols);
  assert(is_code(operand.dtype) && operand.rows == shape.rows && operand.cols == shape.cols);
  return {static_cast<std::uint8_t*>(operand.data), operand.ld, operand.dtype, scaling, along, rows, cols};
}
// Return the codes of a product's factors as they are stored (model/ops/gemm.hpp).
inline Codes codes_of_a(const Gemm& work, const Operand& a) {
  return codes_of(a, work.scaling_a, work.trans_a ? ScaledAlong::columns : ScaledAlong::rows,
                  work.trans_a ? work.k : work.m, work.trans_a ? work.m : work.k);
}
inline Codes codes_of_b(const Gemm& work, const Operand& b) {
  return codes_of(b, work.scaling_b, work.trans_b ? ScaledAlong::rows : ScaledAlong::columns,
                  work.trans_b ? work.n : work.k, work.trans_b ? work.k : work.n);
}

// Calls fn(F{}) with the format of a type of codes.
template <class Fn>
void with_format(Dtype format, Fn fn) {
  switch (format) {
    case Dtype::e4m3:
      return fn(E4m3{});
    case Dtype::e5m2:
      return fn(E5m2{});
    case Dtype::e2m1x2:
      return fn(E2m1{});
    case Dtype::f32:
    case Dtype::f64:
    case Dtype::bf16:
    case Dtype::i32:
    case Dtype::f16:
    case Dtype::i16:
      break;
  }
  assert(false && "not a type of codes");
}

}  // namespace stretto::exec
