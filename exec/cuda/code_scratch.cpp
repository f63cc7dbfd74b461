#include "exec/cuda/code_scratch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "exec/cuda/kernels/code_operands.hpp"
#include "exec/cuda/module/workspace.hpp"

namespace stretto::cuda {
namespace {

std::int64_t in_parts(std::int64_t bytes) { return GroupedRows::rounded(bytes, kApart_bytes); }
std::int64_t scales_bytes(const exec::Codes& codes) {
  return in_parts(scale_grid_of(codes.scaling, codes.along, codes.rows, codes.cols).bytes);
}

// A stored factor of rows × cols whose buffer has no gaps.
exec::Codes stored(Dtype format, Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols) {
  return {nullptr, code_shape(format, scaling, along, rows, cols).cols, format, scaling, along, rows, cols};
}

}  // namespace

bool lies_well(const exec::Codes& codes) {
  return !codes.is_stacked() && codes.ld % kCodeRow_bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(codes.data) % kCodeRow_bytes == 0;
}

bool lies_well(const exec::Operand& factor) {
  return reinterpret_cast<std::uintptr_t>(factor.data) % kFactor_bytes == 0;
}

std::int64_t apart_bytes(const exec::Codes& codes) {
  return scales_bytes(codes) + (lies_well(codes) ? 0 : in_parts(codes.rows * apart_ld(codes)));
}

std::string problem_of_codes(const Schedule& schedule, double compute_capability) {
  const double has = compute_capability;
  for (const Operation& operation : schedule.operations) {
    if (has <= 0) break;
    const auto* gemm = std::get_if<Gemm>(&operation.work);
    if (gemm != nullptr && gemm->has_codes() && (gemm->trans_a || !gemm->trans_b) && has < 10)
      return fmt::format("[training] fp8_transposes: expected true on a GPU of compute capability {:.1f}", has);
    const auto* quantise = std::get_if<Quantise>(&operation.work);
    if (quantise == nullptr) continue;
    const std::int64_t block = rule_of(quantise->scaling).block;
    const bool is_there = block == 0 ? has >= 8.9 : block == 128 ? has >= 9 && has < 10 : has >= 10;
    if (!is_there)
      return fmt::format(
          "[training] {}: expected a recipe whose products cuBLASLt has on a GPU of compute "
          "capability {:.1f}, got {}",
          block == 16 ? "fp4_format" : "fp8_recipe", has,
          block == 0 ? "one with a scale for each tensor" : fmt::format("one with scales of {} codes", block));
  }
  return "";
}

std::int64_t code_scratch_bytes(const Work& work, Dtype a, Dtype b) {
  const auto along = [](bool is_along_rows) { return is_along_rows ? ScaledAlong::rows : ScaledAlong::columns; };
  const auto last_rows_bytes = [](std::int64_t k, std::int64_t n) {
    return last_rows_of_a_bytes(code_shape(Dtype::e4m3, Scaling::block_128, ScaledAlong::rows, 1, k).cols) +
           last_rows_of_c_bytes(n);
  };
  const auto* gemm = std::get_if<Gemm>(&work);
  if (gemm != nullptr && has_block_scales(*gemm))
    return kFactors_bytes + (has_last_rows(*gemm) ? last_rows_bytes(gemm->k, gemm->n) : 0) +
           apart_bytes(stored(a, gemm->scaling_a, along(!gemm->trans_a),
                              gemm->trans_a ? gemm->k : std::max(gemm->m, kProductRows),
                              gemm->trans_a ? gemm->m : gemm->k)) +
           apart_bytes(stored(b, gemm->scaling_b, along(gemm->trans_b), gemm->trans_b ? gemm->n : gemm->k,
                              gemm->trans_b ? gemm->k : gemm->n));
  if (gemm != nullptr) return gemm->has_factors() ? kFactors_bytes : 0;
  const auto* grouped = std::get_if<GroupedGemm>(&work);
  if (grouped == nullptr) return 0;
  if (rule_of(grouped->scaling_b).block == 0) return grouped->has_factors() ? kFactors_bytes : 0;
  // One group may have all rows, and the rows of its transposed codes are of any length.
  const std::int64_t rows = GroupedRows::rounded(grouped->matrix_rows(), group_rows_of(grouped->scaling_a));
  const auto most = [&](Dtype format, Scaling scaling, std::int64_t of_rows, std::int64_t of_cols) {
    std::int64_t bytes = 0;
    for (const ScaledAlong one : {ScaledAlong::rows, ScaledAlong::columns}) {
      const exec::Codes codes = stored(format, scaling, one, of_rows, of_cols);
      bytes = std::max(
          bytes, scales_bytes(codes) + in_parts(codes.rows * apart_ld(codes)) + in_parts(codes.cols * kCodeRow_bytes));
    }
    return bytes;
  };
  const bool is_wgrad = grouped->pass == Pass::wgrad;
  const std::int64_t of_a = grouped->pass == Pass::forward ? grouped->k : grouped->n;
  const std::int64_t last_rows = is_wgrad || grouped->scaling_a != Scaling::block_128
                                     ? 0
                                     : last_rows_bytes(of_a, std::max(grouped->n, grouped->k));
  return kFactors_bytes + last_rows + most(a, grouped->scaling_a, rows, of_a) +
         most(b, grouped->scaling_b, is_wgrad ? rows : grouped->n, grouped->k);
}

std::int64_t scratch_bytes_of(const Schedule& schedule, LaneId lane) {
  std::int64_t most = 0;
  for (const Operation& operation : schedule.operations) {
    if (operation.lane != lane || operation.accesses.size() < 2) continue;
    const auto type = [&](std::size_t i) { return schedule.dtype_of(operation.accesses[i].view); };
    most = std::max(most, code_scratch_bytes(operation.work, type(0), type(1)));
  }
  return static_cast<std::int64_t>(kWorkspace_bytes) + most;
}

}  // namespace stretto::cuda
