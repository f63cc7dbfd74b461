#pragma once
#include <algorithm>
#include <cstdint>

#include "exec/cuda/device.hpp"
#include "exec/operand.hpp"
#include "model/ops/codes.hpp"

namespace stretto::cuda {

// Groups of rows that become codes by themselves, for kernels whose grid has the group as its z.

// Where a group's rows are, in the matrix and in its codes. There are more rows of codes than of the matrix.
struct GroupPlace {
  std::int64_t at, rows, first, padded;
};
// Groups of rows, as exec::RowGroups has them. Passed to kernels by value; without groups all rows are one group.
struct Groups {
  const std::int32_t* offsets = nullptr;  // null where all have `each` rows
  std::int64_t each = 0, count = 0, unit = 1;

  Groups(const GroupedRows& rows, const exec::Operand* of_offsets, std::int64_t of_unit)
      : offsets(of_offsets ? static_cast<const std::int32_t*>(of_offsets->data) : nullptr),
        each(rows.groups > 0 ? rows.rows / rows.groups : rows.rows),
        count(rows.groups),
        unit(rows.groups > 0 ? of_unit : 1) {}
  unsigned grid() const { return static_cast<unsigned>(std::max<std::int64_t>(count, 1)); }
  __device__ GroupPlace place(std::int64_t group) const {
    if (offsets == nullptr) {
      const std::int64_t padded = GroupedRows::rounded(each, unit);
      return {group * each, each, group * padded, padded};
    }
    std::int64_t first = 0;
    for (std::int64_t g = 0; g < group; ++g) first += GroupedRows::rounded(offsets[g + 1] - offsets[g], unit);
    const std::int64_t rows = offsets[group + 1] - offsets[group];
    return {offsets[group], rows, first, GroupedRows::rounded(rows, unit)};
  }
};

}  // namespace stretto::cuda
