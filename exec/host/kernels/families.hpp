#pragma once
#include <span>

#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {

// One function a kernel family, each in the file of its name; run_work() chooses. Operands as Work documents; shapes
// and element types that do not fit the work are our own bugs and asserted.
void run_gemm(const Gemm& work, std::span<const Operand> operands);
void run_attention(const Attention& work, std::span<const Operand> operands);
void run_rope(const Rope& work, std::span<const Operand> operands);
void run_layernorm(const LayerNorm& work, std::span<const Operand> operands);
void run_rmsnorm(const RmsNorm& work, std::span<const Operand> operands);
void run_dropout(const Dropout& work, std::span<const Operand> operands);
void run_elementwise(const Elementwise& work, std::span<const Operand> operands);
// Throws Error(runtime) for a token outside [0, vocab), before anything is written.
void run_embedding(const Embedding& work, std::span<const Operand> operands);
// Throws Error(runtime) for a target outside [0, vocab), before anything is written.
void run_cross_entropy(const CrossEntropy& work, std::span<const Operand> operands);
void run_vocab_stats(const VocabStats& work, std::span<const Operand> operands);
void run_fill(const Fill& work, std::span<const Operand> operands);
void run_cast(const Cast& work, std::span<const Operand> operands);
void run_local_reduce(const LocalReduce& work, std::span<const Operand> operands);
void run_sum_squares(const SumSquares& work, std::span<const Operand> operands);
void run_adamw(const AdamW& work, std::span<const Operand> operands);

// bf16 on a processor that has no arithmetic for it: operands of that type are widened to f32, the kernel runs, what it
// has written is rounded to nearest even. So every operation rounds once, whatever its inside. Takes scratch of the
// size of the widened operands, kept by the thread; meant for checking, not for speed.
bool computes_in_bf16(std::span<const Operand> operands);
void run_in_f32(const Work& work, std::span<const Operand> operands);

}  // namespace stretto::host
