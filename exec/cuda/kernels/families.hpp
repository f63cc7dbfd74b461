#pragma once
#include <span>

#include "exec/cuda/kernels/stream.hpp"
#include "exec/operand.hpp"
#include "model/schedule/work.hpp"

namespace stretto::cuda {

// One overload for each kind of work, in the file of its family; launch_work() calls the matching one, so a kind
// without an overload does not compile. Operands are those that work.hpp documents, on the device; every operand that
// does not have the step's element type has the type that accumulation_of() gives. Computed in f32, rounded once.
// Results depend on shapes and on the device, never on timing.
void run_kernel(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_column_sum(const Elementwise& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const LayerNorm& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const RmsNorm& work, std::span<const exec::Operand> operands, const Stream& stream);
// Heads of up to 256 elements. It has no tensor cores: the fallback where no library has a faster kernel.
void run_kernel(const Attention& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const AttentionMerge& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const SplitHeads& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const PackKv& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const JoinQkv& work, std::span<const exec::Operand> operands, const Stream& stream);
// These have no tensor cores either.
void run_kernel(const AttentionProduct& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Softmax& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Rope& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const LatentHeads& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Dropout& work, std::span<const exec::Operand> operands, const Stream& stream);
// Works of the router and of experts have scores, probabilities, counts and biases in f32. Indices, positions and
// offsets outside their range, and more rows than there is room for, are reported (Stream::fault), and their rows left
// out. Sums are in a fixed order; counts are whole numbers, whose order does not matter.
void run_kernel(const Route& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const BalanceLoss& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const MeanCounts& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const CountLoads& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const MoveBias& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const SortTokens& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Permute& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const CountRows& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const SortByExpert& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const WeightedActivation& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const GateRows& work, std::span<const exec::Operand> operands, const Stream& stream);
// A token outside the vocabulary makes its row NaN, and adds to no gradient.
void run_kernel(const Embedding& work, std::span<const exec::Operand> operands, const Stream& stream);
// A target outside the vocabulary makes the loss NaN.
void run_kernel(const CrossEntropy& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const VocabStats& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Fill& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Cast& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const ScaledCast& work, std::span<const exec::Operand> operands, const Stream& stream);
// These have codes with one scale a tensor, and no Hadamard transform.
void run_kernel(const Amax& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const UpdateScale& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const Quantise& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const TransposeCodes& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const LocalReduce& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const SumSquares& work, std::span<const exec::Operand> operands, const Stream& stream);
void run_kernel(const AdamW& work, std::span<const exec::Operand> operands, const Stream& stream);

}  // namespace stretto::cuda
