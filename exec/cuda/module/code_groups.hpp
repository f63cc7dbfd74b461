#pragma once
#include <cstdint>
#include <span>

#include "exec/cuda/module/gemm.hpp"

namespace stretto::cuda {

// A grouped product of codes: a product by cuBLASLt for each group that has rows, one behind the other, with scales of
// its own. `offsets`: the host's copy of the operand, null when all groups are equal. Throws Error(runtime), before
// anything starts, for offsets that descend or leave the rows.
void run_code_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                     const std::int32_t* offsets, const Stream& stream);
// Runs one group with several numbers of rows, as GroupedGemmRunner::load does.
void load_code_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                      const Stream& stream);

}  // namespace stretto::cuda
