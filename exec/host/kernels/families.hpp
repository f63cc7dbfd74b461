#pragma once
#include <span>

#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {

// One overload for each kind of work, in the file of its family; run_work() calls the matching one, so a kind without
// an overload does not compile. Operands are those that work.hpp documents; shapes and element types that do not fit
// are bugs of the caller and asserted.
void run_kernel(const Gemm& work, std::span<const Operand> operands);
void run_kernel(const Attention& work, std::span<const Operand> operands);
void run_kernel(const AttentionMerge& work, std::span<const Operand> operands);
void run_kernel(const SplitHeads& work, std::span<const Operand> operands);
void run_kernel(const PackKv& work, std::span<const Operand> operands);
void run_kernel(const JoinQkv& work, std::span<const Operand> operands);
void run_kernel(const AttentionProduct& work, std::span<const Operand> operands);
void run_kernel(const Softmax& work, std::span<const Operand> operands);
void run_kernel(const Rope& work, std::span<const Operand> operands);
void run_kernel(const LatentHeads& work, std::span<const Operand> operands);
void run_kernel(const LayerNorm& work, std::span<const Operand> operands);
void run_kernel(const RmsNorm& work, std::span<const Operand> operands);
void run_kernel(const Dropout& work, std::span<const Operand> operands);
void run_kernel(const Elementwise& work, std::span<const Operand> operands);
void run_kernel(const Route& work, std::span<const Operand> operands);
void run_kernel(const BalanceLoss& work, std::span<const Operand> operands);
void run_kernel(const MeanCounts& work, std::span<const Operand> operands);
void run_kernel(const MoveBias& work, std::span<const Operand> operands);
// These throw Error(runtime) for an index, position or offset outside its range: who reads one may be a wrong schedule.
void run_kernel(const CountLoads& work, std::span<const Operand> operands);
void run_kernel(const SortTokens& work, std::span<const Operand> operands);
void run_kernel(const Permute& work, std::span<const Operand> operands);
// Throws where more rows come than there is room for, too.
void run_kernel(const CountRows& work, std::span<const Operand> operands);
void run_kernel(const SortByExpert& work, std::span<const Operand> operands);
void run_kernel(const GroupedGemm& work, std::span<const Operand> operands);
void run_kernel(const WeightedActivation& work, std::span<const Operand> operands);
void run_kernel(const GateRows& work, std::span<const Operand> operands);
void run_kernel(const ShortConv& work, std::span<const Operand> operands);
void run_kernel(const LinearGates& work, std::span<const Operand> operands);
void run_kernel(const LinearAttention& work, std::span<const Operand> operands);
void run_kernel(const GatedNorm& work, std::span<const Operand> operands);
// Throws Error(runtime) for a token outside [0, vocab), before anything is written.
void run_kernel(const Embedding& work, std::span<const Operand> operands);
// Throws Error(runtime) for a target outside [0, vocab), before anything is written.
void run_kernel(const CrossEntropy& work, std::span<const Operand> operands);
void run_kernel(const VocabStats& work, std::span<const Operand> operands);
void run_kernel(const Fill& work, std::span<const Operand> operands);
void run_kernel(const Cast& work, std::span<const Operand> operands);
void run_kernel(const ScaledCast& work, std::span<const Operand> operands);
void run_kernel(const Amax& work, std::span<const Operand> operands);
void run_kernel(const UpdateScale& work, std::span<const Operand> operands);
void run_kernel(const Quantise& work, std::span<const Operand> operands);
void run_kernel(const TransposeCodes& work, std::span<const Operand> operands);
void run_kernel(const LocalReduce& work, std::span<const Operand> operands);
void run_kernel(const SumSquares& work, std::span<const Operand> operands);
void run_kernel(const AdamW& work, std::span<const Operand> operands);

// bf16 on a processor without bf16 arithmetic: operands of that type are widened to f32, the kernel runs, and its
// results are rounded to nearest even. So every operation rounds once, whatever it computes inside. Takes scratch of
// the size of the widened operands, kept by the thread; meant for checking, not for speed.
bool computes_in_bf16(std::span<const Operand> operands);
void run_in_f32(const Work& work, std::span<const Operand> operands);

}  // namespace stretto::host
