#include "exec/cuda/module/code_products.hpp"

#include <vector>

#include "base/error.hpp"
#include "exec/code_groups.hpp"
#include "exec/cuda/code_scratch.hpp"
#include "exec/cuda/kernels/code_operands.hpp"

namespace stretto::cuda {
namespace {

// Starts the product of the last rows, fewer than kProductRows.
void start_last_rows(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                     const StartProduct& start) {
  const std::int64_t rows = work.m % kProductRows, first = work.m - rows;
  const exec::Operand &a = operands[0], &c = operands.back();
  const std::int64_t a_bytes = last_rows_of_a_bytes(a.cols), bytes = a_bytes + last_rows_of_c_bytes(work.n);
  if (static_cast<std::size_t>(bytes) > stream.scratch_bytes)
    throw runtime_failure("the last rows of " + describe(Work(work)) + " do not fit into the scratch of its lane");
  Stream left = stream;
  left.scratch_bytes = (stream.scratch_bytes - static_cast<std::size_t>(bytes)) / kApart_bytes * kApart_bytes;
  std::byte* const place = static_cast<std::byte*>(stream.scratch) + left.scratch_bytes;

  Gemm product = work;
  product.m = kProductRows;
  std::vector<exec::Operand> all(operands.begin(), operands.end());
  all[0].data = place;
  all[0].rows = kProductRows;
  all[0].ld = GroupedRows::rounded(a.cols, kCodeRow_bytes);
  // Whole rows with their scales. The rows after them hold any values; their results are not read.
  const exec::Operand last = exec::rows_of(a, first, rows);
  copy_codes({static_cast<std::uint8_t*>(last.data), a.ld, a.dtype, Scaling::tensor, ScaledAlong::rows, rows, a.cols},
             place, all[0].ld, stream);
  all.back() = {place + a_bytes, c.dtype, kProductRows, work.n, work.n, AccessMode::write};
  start(product, all, left);
  put_rows(all.back(), exec::rows_of(c, first, rows), stream);
}

}  // namespace

void for_each_product(const Gemm& work, std::span<const exec::Operand> operands, const Stream& stream,
                      const StartProduct& start) {
  if (!work.has_codes()) return start(work, operands, stream);
  assert(work.epilogue == GemmEpilogue::none && "lowering has no epilogues of codes");
  constexpr std::size_t bias = 2;
  if (work.bias && operands[bias].dtype == Dtype::f32) {
    Gemm product = work;
    product.bias = false;
    std::vector<exec::Operand> all(operands.begin(), operands.end());
    all.erase(all.begin() + bias);
    for_each_product(product, all, stream, start);
    return add_bias(operands[bias], operands.back(), stream);
  }
  if (!has_last_rows(work)) return start(work, operands, stream);
  assert(!work.trans_a);
  if (const std::int64_t rows = work.m / kProductRows * kProductRows; rows > 0) {
    Gemm product = work;
    product.m = rows;
    std::vector<exec::Operand> all(operands.begin(), operands.end());
    all[0] = exec::rows_of(all[0], 0, rows);
    all.back() = exec::rows_of(all.back(), 0, rows);
    start(product, all, stream);
  }
  start_last_rows(work, operands, stream, start);
}

}  // namespace stretto::cuda
