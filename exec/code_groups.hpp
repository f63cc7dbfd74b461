#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "exec/expert_errors.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::exec {

// Where the rows of each group begin in a matrix, and where in its codes. Throws Error(runtime) for offsets that cannot
// be, as another operation has made them.
class RowGroups {
 public:
  // Offsets, groups + 1 of them in the host's memory, are null where all groups have equally many rows.
  RowGroups(const std::int32_t* offsets, const GroupedRows& groups) : offsets_(offsets), groups_(groups) {}
  RowGroups(const Operand* offsets, const GroupedRows& groups)
      : RowGroups(offsets ? static_cast<const std::int32_t*>(offsets->data) : nullptr, groups) {}

  std::int64_t at(std::int64_t group) const {
    if (offsets_ == nullptr) return group * (groups_.rows / groups_.groups);
    const std::int64_t offset = offsets_[group], end = groups_.matrix_rows() + 1;
    if (offset < 0 || offset >= end) throw runtime_failure(number_outside("offset", offset, end));
    return offset;
  }
  std::int64_t size(std::int64_t group) const {
    const std::int64_t begin = at(group), end = at(group + 1);
    if (end < begin) throw runtime_failure(kOffsetsDescend);
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
  const std::int32_t* offsets_;
  const GroupedRows groups_;
};

// Returns rows [first, first + rows) of a matrix.
Operand rows_of(Operand matrix, std::int64_t first, std::int64_t rows);
// Returns number `i` of a vector.
Operand element_of(Operand vector, std::int64_t i);
// Returns the codes of a group, whose rows of codes begin at `first`, as an operand of its own: a copy along `along`.
// cols are the matrix's.
Operand codes_of_group(const Operand& all, Scaling scaling, ScaledAlong along, std::int64_t first, std::int64_t rows,
                       std::int64_t cols);
// Returns the transposed codes of a group. They follow one another without gaps.
Operand transposed_of_group(const Operand& all, Scaling scaling, std::int64_t first, std::int64_t rows,
                            std::int64_t cols);

// The product of one group of a GroupedGemm of codes, with operands of its own.
struct GroupProduct {
  Gemm work;
  std::vector<Operand> operands;
};
// Returns the product of group `g`, which has `rows` > 0 rows from row `at` on, in its codes `padded` from `first` on.
GroupProduct product_of_group(const GroupedGemm& work, std::span<const Operand> operands, std::int64_t g,
                              std::int64_t at, std::int64_t rows, std::int64_t first, std::int64_t padded);

}  // namespace stretto::exec
