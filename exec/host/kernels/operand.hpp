#pragma once
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/error.hpp"
#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {

// Helpers for kernels over exec::Operand: `rows` rows of `cols` elements, rows `ld` elements apart. All are pure
// functions; operands do not own their memory.

// Returns the operand's elements; T must match its dtype.
template <class T>
T* data_of(const Operand& operand) {
  return static_cast<T*>(operand.data);
}

// Returns the first element of row `row`; T must match the operand's dtype, and `row` is not checked.
template <class T>
T* row_of(const Operand& operand, std::int64_t row) {
  return data_of<T>(operand) + row * operand.ld;
}

// Returns whether the operand is [rows, cols] and its rows do not overlap. Kernels assert this.
inline bool has_shape(const Operand& operand, std::int64_t rows, std::int64_t cols) {
  return operand.rows == rows && operand.cols == cols && (operand.ld >= cols || rows == 1);
}

// Returns whether the elements follow one another without gaps.
inline bool is_contiguous(const Operand& operand) { return operand.rows == 1 || operand.ld == operand.cols; }

inline std::int64_t elements_of(const Operand& operand) { return operand.rows * operand.cols; }

// Returns whether all operands have the type of the first one. There must be at least one.
inline bool have_one_dtype(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.dtype != operands[0].dtype) return false;
  }
  return true;
}

// Loop bounds over operands: one long row when all are contiguous, else row by row.
struct LoopShape {
  std::int64_t rows = 0, cols = 0;
};
// Returns the loop bounds of operands whose shapes must be equal; a debug build asserts that.
inline LoopShape loop_of(std::initializer_list<const Operand*> operands) {
  const Operand& first = **operands.begin();
  for (const Operand* operand : operands) {
    assert(operand->rows == first.rows && operand->cols == first.cols);
    if (!is_contiguous(*operand)) return {first.rows, first.cols};
  }
  return {1, elements_of(first)};
}

// Returns row `row` of an i32 operand of indices below `count`: a token or a target. Throws Error(runtime) when the
// index is out of range. Kernels check all rows before they write anything, and each row again when they use it: in a
// wrong schedule another operation may overwrite the indices in between.
inline std::int32_t index_at(const Operand& indices, std::int64_t row, std::int64_t count, const char* what) {
  const std::int32_t index = *row_of<std::int32_t>(indices, row);
  if (index < 0 || index >= count)
    throw runtime_failure(std::string(what) + " " + std::to_string(index) + " at row " + std::to_string(row) +
                          " is outside the vocabulary [0, " + std::to_string(count) + ")");
  return index;
}

// Calls fn(T{}) with the element type of a compute operand, f32 or f64. Any other type is an error of the caller: a
// debug build asserts, a release build calls nothing.
template <class Fn>
void with_compute_type(Dtype dtype, Fn fn) {
  switch (dtype) {
    case Dtype::f32:
      return fn(float{});
    case Dtype::f64:
      return fn(double{});
    case Dtype::bf16:
    case Dtype::i32:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::e2m1x2:
    case Dtype::f16:
    case Dtype::i16:
      break;
  }
  assert(false && "compute operands are f32 or f64");
}

}  // namespace stretto::host
