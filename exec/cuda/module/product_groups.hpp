#pragma once
#include <cstdint>
#include <span>

#include "exec/cuda/module/gemm.hpp"

namespace stretto::cuda {

// Products of experts with any numbers of rows: a product by cuBLASLt for each group that has rows, one after the
// other, as TransformerEngine makes them; of codes with scales of its own. `offsets`: the host's copy of the operand,
// null when all groups are equal. Throws Error(runtime), before anything starts, for offsets that descend or leave the
// rows.
void run_product_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                        const std::int32_t* offsets, const Stream& stream);
// Runs the product of a group with several numbers of rows, so that CUDA loads kernels of most sizes. The operands must
// hold nothing of value, but numbers.
void load_product_groups(GemmRunner& gemms, const GroupedGemm& work, std::span<const exec::Operand> operands,
                         const Stream& stream);

}  // namespace stretto::cuda
