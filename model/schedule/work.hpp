#pragma once
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "model/ops/adamw.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/codes.hpp"
#include "model/ops/communication.hpp"
#include "model/ops/documents.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elements.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/experts.hpp"
#include "model/ops/fields.hpp"
#include "model/ops/gemm.hpp"
#include "model/ops/linear_attention.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rope.hpp"
#include "model/ops/unfused_attention.hpp"
#include "model/ops/vocabulary.hpp"

namespace stretto {

// The work of an operation. Each kind lists its operands in order; an operation's accesses follow that order exactly. R
// = read, W = write (old contents ignored), A = accumulate (reads the old contents and adds to or updates them).
// Matrices are row-major. T = tokens of a micro-batch (micro_batch_size × sequence), H = hidden, F = ffn, V =
// vocabulary.
//
// Each kind lists its fields once (model/ops/fields.hpp); JSON, hash and evaluation follow from the list. An Expr
// field depends on the rank's place: it names axes of the mesh, never coordinates of a call, and decides no size.
// bind() evaluates it, so simulator and executors read value().
//
// A family of works is a pair of files in model/ops: the struct with its operands in words, `operands`, the same list
// as data, `sizes_text`, which describe() prints, and `counted_flops`.
using Work = std::variant<Gemm, Attention, AttentionProduct, Softmax, AttentionMerge, SplitHeads, PackKv, JoinQkv, Rope,
                          LatentHeads, LayerNorm, RmsNorm, Elementwise, Dropout, Route, BalanceLoss, MeanCounts,
                          CountLoads, MoveBias, SortTokens, Permute, CountRows, SortByExpert, GroupedGemm,
                          WeightedActivation, GateRows, ShortConv, LinearGates, LinearAttention, GatedNorm, Embedding,
                          CrossEntropy, VocabStats, Fill, Cast, ScaledCast, Amax, UpdateScale, Quantise, TransposeCodes,
                          LocalReduce, SumSquares, AdamW, Collective, PointToPoint>;

inline bool is_of_experts(const Work& work) {
  return std::visit([]<class W>(const W&) { return OfExperts<W>; }, work);
}

// A work of low precision.
inline bool has_codes(const Work& work) {
  const auto* gemm = std::get_if<Gemm>(&work);
  const auto* grouped = std::get_if<GroupedGemm>(&work);
  return gemm != nullptr ? gemm->has_codes() : grouped != nullptr && grouped->has_codes();
}
inline bool is_of_low_precision(const Work& work) {
  return std::visit([]<class W>(const W&) { return OfLowPrecision<W>; }, work);
}

bool is_communication(const Work& work);
std::uint32_t communicator_of(const Work& work);  // communicator of a communication
const char* kind_of(const Work& work);            // "gemm", "attention", …
std::string describe(const Work& work);           // "gemm 512x768x256 tn"
// Multiply-adds × 2 of products and attention (causal halves it), and what frameworks count of linear attention; 0 for
// other kinds.
double model_flops(const Work& work);

// Returns whether the work of a rank depends on its coordinate on the axis.
bool depends_on(const Work& work, Coord axis);
// Returns the work of the rank at these coordinates, with every Expr a constant.
Work evaluate(const Work& work, const Coordinates& at);

// Returns a fused work (a GEMM with an epilogue, both gradients of a norm) as the works that it stands for, which run
// one after the other. An executor without a fused kernel runs these, and the simulator prices them. Empty: the work is
// not fused.
struct Part {
  Work work;
  struct Operand {
    std::size_t index = 0;  // index into the operands of the fused work
    bool is_read = false;   // this part reads the operand, whatever the fused work does with it
  };
  std::vector<Operand> operands;
};
std::vector<Part> parts_of(const Work& work);

}  // namespace stretto
