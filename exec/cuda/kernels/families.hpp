#pragma once
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// One function a kernel family, each in the file of its name; launch_work() chooses. Operands as Work documents, on the
// device; every operand that is not of the step's element type is of the type that accumulation_of() gives. Computed in
// f32, rounded once. Results depend on shapes and on the number of SMs, never on timing.
void run_elementwise(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_column_sum(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_layernorm(const LayerNorm& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_rmsnorm(const RmsNorm& work, std::span<const exec::Operand> operands, const Stream& stream);
// Heads of up to 256. Without tensor cores: what stands in where a library has nothing faster.
void run_attention(const Attention& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_rope(const Rope& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_dropout(const Dropout& work, std::span<const exec::Operand> operands, const Stream& stream);
// A token outside the vocabulary makes its row NaN, and adds to no gradient.
void run_embedding(const Embedding& work, std::span<const exec::Operand> operands, const Stream& stream);
// A target outside the vocabulary makes the loss NaN.
void run_cross_entropy(const CrossEntropy& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_vocab_stats(const VocabStats& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_fill(const Fill& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_cast(const Cast& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_local_reduce(const LocalReduce& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_sum_squares(const SumSquares& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_adamw(const AdamW& work, std::span<const exec::Operand> operands, const Stream& stream);

}  // namespace stretto::cuda
