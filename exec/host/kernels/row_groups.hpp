#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "exec/expert_errors.hpp"
#include "exec/host/kernels/operand.hpp"
#include "model/schedule/low_precision_work.hpp"

namespace stretto::host {

// Where the rows of each group begin in a matrix, and where in its codes. Throws Error(runtime) for offsets that cannot
// be, as another operation has made them.
class RowGroups {
 public:
  // Offsets are null where all groups have equally many rows.
  RowGroups(const Operand* offsets, const GroupedRows& groups) : offsets_(offsets), groups_(groups) {}

  std::int64_t at(std::int64_t group) const {
    if (offsets_ == nullptr) return group * (groups_.rows / groups_.groups);
    const std::int64_t offset = row_of<std::int32_t>(*offsets_, 0)[group], end = groups_.matrix_rows() + 1;
    if (offset < 0 || offset >= end) throw runtime_failure(exec::number_outside("offset", offset, end));
    return offset;
  }
  std::int64_t size(std::int64_t group) const {
    const std::int64_t begin = at(group), end = at(group + 1);
    if (end < begin) throw runtime_failure(exec::kOffsetsDescend);
    return end - begin;
  }
  // Calls visit(group, first row, rows, first row of codes, rows of codes) for each group. Rows of codes are rounded up
  // to multiples of `unit`.
  template <class Visit>
  void for_each(std::int64_t unit, const Visit& visit) const {
    std::int64_t first = 0;
    for (std::int64_t group = 0; group < groups_.groups; ++group) {
      const std::int64_t rows = size(group), padded = GroupedRows::rounded(rows, unit);
      visit(group, at(group), rows, first, padded);
      first += padded;
    }
  }

 private:
  const Operand* offsets_;
  const GroupedRows groups_;
};

// Returns rows [first, first + rows) of a matrix.
inline Operand rows_of(Operand matrix, std::int64_t first, std::int64_t rows, std::int64_t element_bytes) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.ld * element_bytes;
  matrix.rows = rows;
  return matrix;
}

// Returns the codes of a group, whose rows of codes begin at `first`, as an operand of its own: a copy along `along`.
// cols are the matrix's.
inline Operand codes_of_group(const Operand& all, Scaling scaling, ScaledAlong along, std::int64_t first,
                              std::int64_t rows, std::int64_t cols) {
  const std::int64_t begin = code_shape(all.dtype, scaling, along, first, cols).rows;
  return rows_of(all, begin, code_shape(all.dtype, scaling, along, rows, cols).rows, 1);
}
// Returns the transposed codes of a group. They follow one another without gaps.
inline Operand transposed_of_group(const Operand& all, Scaling scaling, std::int64_t first, std::int64_t rows,
                                   std::int64_t cols) {
  assert(is_contiguous(all));
  const auto shape_of = [&](std::int64_t count) {
    return code_shape(all.dtype, scaling, ScaledAlong::rows, cols, count);
  };
  const CodeShape before = shape_of(first), shape = shape_of(rows);
  Operand group = all;
  group.data = static_cast<std::byte*>(all.data) + before.rows * before.cols;
  group.rows = shape.rows;
  group.cols = group.ld = shape.cols;
  return group;
}

}  // namespace stretto::host
