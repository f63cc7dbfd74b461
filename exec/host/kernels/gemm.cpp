#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <vector>

#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/codes.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "exec/host/kernels/operand.hpp"

namespace stretto::host {
namespace {

template <class T>
void gemm(const Gemm& work, const Operand& a, const Operand& b, const Operand* bias, const Operand& c) {
  const bool accumulate = c.mode == AccessMode::accumulate;
  if (bias) {
    const T* add = data_of<T>(*bias);
    for (std::int64_t row = 0; row < work.m; ++row) {
      T* to = row_of<T>(c, row);
      if (accumulate) {
        for (std::int64_t col = 0; col < work.n; ++col) to[col] += add[col];
      } else {
        std::copy_n(add, work.n, to);
      }
    }
  }
  blas_gemm(work.trans_a, work.trans_b, work.m, work.n, work.k, T(1), data_of<T>(a), a.ld, data_of<T>(b), b.ld,
            accumulate || bias ? T(1) : T(0), data_of<T>(c), c.ld);
}

// BLAS requires ld ≥ cols even for a single row, for which the schedule may have any ld.
Operand with_valid_ld(Operand operand) {
  operand.ld = std::max(operand.ld, operand.cols);
  return operand;
}

}  // namespace

void run_kernel(const Gemm& work, std::span<const Operand> operands) {
  if (work.epilogue != GemmEpilogue::none) {  // BLAS has no epilogues
    for (const Part& part : parts_of(work)) run_work(part.work, exec::operands_of(part, operands));
    return;
  }
  if (work.has_codes()) return gemm_of_codes(work, operands);
  assert(operands.size() == (work.bias ? 4u : 3u));
  const Operand a = with_valid_ld(operands[0]), b = with_valid_ld(operands[1]), c = with_valid_ld(operands.back());
  const Operand* bias = work.bias ? &operands[2] : nullptr;
  assert(has_shape(a, work.trans_a ? work.k : work.m, work.trans_a ? work.m : work.k));
  assert(has_shape(b, work.trans_b ? work.n : work.k, work.trans_b ? work.k : work.n));
  assert(has_shape(c, work.m, work.n));
  assert(!bias || (elements_of(*bias) == work.n && bias->dtype == c.dtype));
  assert(a.dtype == c.dtype && b.dtype == c.dtype);
  with_compute_type(c.dtype, [&](auto type) { gemm<decltype(type)>(work, a, b, bias, c); });
}

}  // namespace stretto::host
