#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/fp8.hpp"
#include "exec/host/kernels/operand.hpp"
#include "model/schedule/low_precision_work.hpp"

namespace stretto::host {

// A matrix [rows, cols] as codes with their scales, in the layout of code_shape(): where each code and scale is. Does
// not own its memory.
struct Codes {
  std::uint8_t* data = nullptr;
  std::int64_t ld = 0;  // bytes from one stored row to the next
  Dtype format = Dtype::e4m3;
  Scaling scaling = Scaling::tensor;
  ScaledAlong along = ScaledAlong::rows;
  std::int64_t rows = 0, cols = 0;

  ScalingRule rule() const { return rule_of(scaling); }
  std::int64_t per_byte() const { return format == Dtype::e2m1x2 ? 2 : 1; }
  // Blocks share scales down the columns: `along` says so, or they are squares of 128.
  bool is_stacked() const {
    return scaling == Scaling::block_128x128 || (rule().block > 0 && along == ScaledAlong::columns);
  }
  // Stored rows of scales behind the rows of a block.
  std::int64_t scale_rows() const {
    return !is_stacked() ? 0 : scaling == Scaling::block_128x128 ? 1 : rule().scale_bytes * per_byte();
  }
  std::uint8_t* row(std::int64_t r) const {
    return data + (r + (is_stacked() ? r / rule().block * scale_rows() : 0)) * ld;
  }
  // Returns the bytes of the scale of the code at (r, c); the scaling has scales of blocks. They are not aligned.
  std::uint8_t* scale_at(std::int64_t r, std::int64_t c) const {
    const ScalingRule of = rule();
    if (!is_stacked()) return row(r) + cols / per_byte() + c / of.block * of.scale_bytes;
    const std::int64_t top = r / of.block * of.block, below = std::min(top + of.block, rows);
    std::uint8_t* first = data + (below + top / of.block * scale_rows()) * ld;
    if (scaling == Scaling::block_128x128) return first + c / of.block * of.block;
    const std::int64_t byte = c * of.scale_bytes, width = cols / per_byte();
    return first + byte / width * ld + byte % width;
  }
  // Returns the scale itself: a code × scale (× the tensor's factor) is the number.
  float scale_of(std::int64_t r, std::int64_t c) const {
    const std::uint8_t* bytes = scale_at(r, c);
    if (scaling == Scaling::mx) return value_of_scale(*bytes);
    if (rule().scale_bytes == 1) return from_code<E4m3>(*bytes);
    float scale = 0;
    std::memcpy(&scale, bytes, sizeof scale);
    return scale;
  }
};

// Returns the codes of an operand, which is stored as code_shape() says.
inline Codes codes_of(const Operand& operand, Scaling scaling, ScaledAlong along, std::int64_t rows,
                      std::int64_t cols) {
  [[maybe_unused]] const CodeShape shape = code_shape(operand.dtype, scaling, along, rows, cols);
  assert(is_code(operand.dtype) && has_shape(operand, shape.rows, shape.cols));
  return {data_of<std::uint8_t>(operand), operand.ld, operand.dtype, scaling, along, rows, cols};
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
      break;
  }
  assert(false && "not a type of codes");
}

// Writes the numbers of rows [first, first + count), all columns, without the tensor's factor: code × scale of the
// block, which is exact in f32. numbers[count, cols].
void decode(const Codes& codes, std::int64_t first, std::int64_t count, float* numbers);

// A Gemm with scalings and without an epilogue, with the operands of work.hpp.
void gemm_of_codes(const Gemm& work, std::span<const Operand> operands);
// A GroupedGemm with scalings: for each group that product of its codes. A group without rows has results neither in y
// nor in dweights.
void grouped_gemm_of_codes(const GroupedGemm& work, std::span<const Operand> operands);

}  // namespace stretto::host
