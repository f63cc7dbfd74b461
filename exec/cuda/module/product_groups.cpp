#include "exec/cuda/module/product_groups.hpp"

#include "base/error.hpp"
#include "exec/code_groups.hpp"
#include "exec/expert_errors.hpp"

namespace stretto::cuda {
namespace {

std::int64_t unit_of(const GroupedGemm& work) { return work.has_codes() ? group_rows_of(work.scaling_a) : 1; }

}  // namespace

void run_product_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                        const std::int32_t* offsets, const Stream& stream) {
  const exec::RowGroups groups(offsets, work.grouped());
  // Codes of groups, and so their rows here, follow one another from the first row on.
  if (groups.at(0) != 0) throw runtime_failure(exec::number_outside("offset", groups.at(0), 1));
  for (std::int64_t group = 0; group < work.groups; ++group) groups.size(group);  // throws
  groups.for_each(
      unit_of(work), [&](std::int64_t g, std::int64_t at, std::int64_t rows, std::int64_t first, std::int64_t padded) {
        if (rows == 0) return;
        const exec::GroupProduct product = exec::product_of_group(work, operands, g, at, rows, first, padded);
        gemms.run_untuned(product.work, product.operands, stream);
      });
}

void load_product_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                         const Stream& stream) {
  const auto run_one = [&](std::int64_t rows) {
    const exec::GroupProduct product =
        exec::product_of_group(work, operands, 0, 0, rows, 0, GroupedRows::rounded(rows, unit_of(work)));
    gemms.run_untuned(product.work, product.operands, stream);
  };
  for (std::int64_t rows = 1; rows < work.matrix_rows(); rows *= 2) run_one(rows);
  run_one(work.equal ? work.rows / work.groups : work.matrix_rows());
}

}  // namespace stretto::cuda
