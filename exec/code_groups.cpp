#include "exec/code_groups.hpp"

#include <cassert>
#include <utility>

#include "exec/codes.hpp"

namespace stretto::exec {
Operand rows_of(Operand matrix, std::int64_t first, std::int64_t rows) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.ld * bytes_of(matrix.dtype);
  matrix.rows = rows;
  return matrix;
}

Operand element_of(Operand vector, std::int64_t i) {
  vector.data = static_cast<std::byte*>(vector.data) + i * bytes_of(vector.dtype);
  vector.rows = vector.cols = vector.ld = 1;
  return vector;
}

Operand codes_of_group(const Operand& all, Scaling scaling, ScaledAlong along, std::int64_t first, std::int64_t rows,
                       std::int64_t cols) {
  const std::int64_t begin = code_shape(all.dtype, scaling, along, first, cols).rows;
  return rows_of(all, begin, code_shape(all.dtype, scaling, along, rows, cols).rows);
}

Operand transposed_of_group(const Operand& all, Scaling scaling, std::int64_t first, std::int64_t rows,
                            std::int64_t cols) {
  assert(all.rows == 1 || all.ld == all.cols);
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

GroupProduct product_of_group(const GroupedGemm& work, std::span<const Operand> operands, std::int64_t g,
                              std::int64_t at, std::int64_t rows, std::int64_t first, std::int64_t padded) {
  const Operand &a = operands[0], &b = operands[1], &c = operands.back();
  const bool is_wgrad = work.pass == Pass::wgrad, is_forward = work.pass == Pass::forward;
  Gemm product{.bias = false,
               .scaling_a = work.scaling_a,
               .scaling_b = work.scaling_b,
               .split_accumulation = work.split_accumulation};
  std::vector<Operand> of_group;
  if (is_wgrad) {
    product.m = work.n, product.n = work.k, product.k = padded;
    product.trans_a = !work.transposes, product.trans_b = work.transposes;
    const auto codes = [&](const Operand& all, Scaling scaling, std::int64_t cols) {
      return work.transposes ? transposed_of_group(all, scaling, first, padded, cols)
                             : codes_of_group(all, scaling, ScaledAlong::columns, first, padded, cols);
    };
    of_group = {codes(a, work.scaling_a, work.n), codes(b, work.scaling_b, work.k)};
  } else {
    product.m = rows, product.n = is_forward ? work.n : work.k, product.k = is_forward ? work.k : work.n;
    product.trans_a = false, product.trans_b = is_forward || work.transposes;
    const std::int64_t weight = g * work.n;
    of_group = {codes_of_group(a, work.scaling_a, ScaledAlong::rows, first, rows, product.k),
                is_forward        ? codes_of_group(b, work.scaling_b, ScaledAlong::rows, weight, work.n, work.k)
                : work.transposes ? transposed_of_group(b, work.scaling_b, weight, work.n, work.k)
                                  : codes_of_group(b, work.scaling_b, ScaledAlong::columns, weight, work.n, work.k)};
  }
  if (work.has_factors())
    for (std::size_t i = 0; i < 2; ++i) of_group.push_back(element_of(operands[work.inverse_index() + i], g));
  of_group.push_back(is_wgrad ? rows_of(c, g * work.n, work.n) : rows_of(c, at, rows));
  return {product, std::move(of_group)};
}

}  // namespace stretto::exec
