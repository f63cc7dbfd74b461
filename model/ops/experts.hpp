#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/router_score.hpp"
#include "model/ops/codes.hpp"
#include "model/ops/expr.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// Works of the router and of experts (model/experts.hpp), by the rules of model/schedule/work.hpp.
//
// T tokens go through topk of E experts each: T·topk rows, whatever the router says, sorted by expert. How many each
// expert has is in a tensor, which kernels read, so that no size depends on it. Or every expert has equally many rows,
// `each`; rows that no token has are padding.

// The router: which experts each row goes through, in ascending order, and the probability of each. Of equal scores the
// first expert's counts more. When `biased` the experts, and their groups, with the highest sums of score and bias are
// chosen; probabilities are made of scores alone. With z_scale the gradient has that of z_scale · Σ (log Σ exp logits)²
// as well.
//
// forward: logits[rows,experts] R, (bias[1,experts] R), indices[rows,topk] i32 W, probabilities[rows,topk] W.
// dgrad:   logits R, indices R, dprobabilities[rows,topk] R, dlogits[rows,experts] W.
struct Route {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, experts = 0, topk = 0;
  RouterScore score = RouterScore::softmax;
  bool pre_softmax = false;
  double scaling = 1;
  std::int64_t groups = 0, group_topk = 0;
  double z_scale = 0;
  bool biased = false;

  std::size_t indices_at() const { return biased && pass == Pass::forward ? 2 : 1; }  // index among the operands
  static constexpr const char* kKind = "route";
  static constexpr std::array kFields = {"pass",    "rows",   "experts",    "topk",    "score", "pre_softmax",
                                         "scaling", "groups", "group_topk", "z_scale", "biased"};
  bool operator==(const Route&) const = default;
};

// The loss scale · Σ p[t,e] · counts[of t,e] over tokens and experts, which keeps loads equal: p is the softmax over
// all experts, or sigmoids divided by their sum, and counts are tokens that have an expert among their topk by p.
// Counts are of each of `sequences`, or with 1 of all rows. Which sequence a row is of says its place, first_row + row,
// among tokens; `parts` of them are here.
//
// forward: logits[rows,experts] R, counts[sequences,experts] W.
// dgrad:   logits R, counts R, dlogits[rows,experts] A.
struct BalanceLoss {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, experts = 0, topk = 0;
  RouterScore score = RouterScore::softmax;
  std::int64_t sequences = 1, seq = 0;
  Expr first_row = 0;
  SequenceParts parts = {};
  double scale = 0;

  static constexpr const char* kKind = "balance_loss";
  static constexpr std::array kFields = {"pass",      "rows", "experts",   "topk",  "score",
                                         "sequences", "seq",  "first_row", "parts", "scale"};
  bool operator==(const BalanceLoss&) const = default;
};

// Replaces counts of a micro-batch by the mean of those of the step's micro-batches so far, all of equally many tokens:
// adds counts to tally, and counts become tally · Σ counts / Σ tally. counts[1,experts] A, tally[1,experts] A.
struct MeanCounts {
  std::int64_t experts = 0;

  static constexpr const char* kKind = "mean_counts";
  static constexpr std::array kFields = {"experts"};
  bool operator==(const MeanCounts&) const = default;
};

// Adds how many of the rows go through each expert. indices[rows,topk] i32 R, loads[1,experts] A.
struct CountLoads {
  std::int64_t rows = 0, topk = 0, experts = 0;

  static constexpr const char* kKind = "count_loads";
  static constexpr std::array kFields = {"rows", "topk", "experts"};
  bool operator==(const CountLoads&) const = default;
};

// Moves each expert's bias by `rate` against the sign of how much its load is above the mean of its row (arXiv
// 2408.15664; get_updated_expert_bias() of Megatron-LM). loads[rows,experts] R, bias[rows,experts] A.
struct MoveBias {
  std::int64_t rows = 0, experts = 0;
  double rate = 0;

  static constexpr const char* kKind = "move_bias";
  static constexpr std::array kFields = {"rows", "experts", "rate"};
  bool operator==(const MoveBias&) const = default;
};

// Where the topk copies of each row go when all are sorted by expert, and for one expert by row. With `local` only
// copies for `local` experts, from `first` on, go anywhere, to at most `capacity` rows; the position of others is -1.
// With `each` there are no offsets, and no capacity; more copies for an expert are an error.
// indices[rows,topk] i32 R, (offsets[1,experts_here() + 1] i32 W: the first row of each expert, then all),
// positions[rows,topk] i32 W.
struct SortTokens {
  std::int64_t rows = 0, topk = 0, experts = 0;
  std::int64_t each = 0, local = 0, capacity = 0;
  Expr first = 0;

  std::int64_t experts_here() const { return local > 0 ? local : experts; }
  static constexpr const char* kKind = "sort_tokens";
  static constexpr std::array kFields = {"rows", "topk", "experts", "each", "local", "capacity", "first"};
  bool operator==(const SortTokens&) const = default;
};

// Copies of tokens to sorted rows, or with `apart` something that each copy has of its own. Position -1 is nowhere.
// Where not every row has a copy there are `rows`; and where not every copy has a row, these are those of equal
// experts, with room for `capacity`. When `padded` rows without a copy are 0.
//
// Forward rows may be of codes, with their scales.
//
// forward: positions[tokens,copies] i32 R, x[tokens,cols] R (apart: [tokens,copies·cols]), rows[matrix_rows(),cols] W.
// backward, the way back: positions R, rows R, x W|A. Copies of a token are added up, in order.
struct Permute {
  Pass pass = Pass::forward;
  std::int64_t tokens = 0, copies = 0, cols = 0;
  bool apart = false;
  bool in_transport = false;            // on GPUs the kernel that exchanges rows does this too (TokenTransport)
  std::int64_t rows = 0, capacity = 0;  // 0: tokens · copies
  bool padded = false;

  std::int64_t x_cols() const { return apart ? copies * cols : cols; }
  std::int64_t sorted_rows() const { return rows > 0 ? rows : tokens * copies; }
  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : sorted_rows(); }
  static constexpr const char* kKind = "permute";
  static constexpr std::array kFields = {"pass",         "tokens", "copies",   "cols",  "apart",
                                         "in_transport", "rows",   "capacity", "padded"};
  bool operator==(const Permute&) const = default;
};

// The rows that a rank's experts get from all ranks that share the experts: the first of each of its `local` experts'
// rows, from expert `first` on, when all are sorted by expert, and then all of them, which must be at most `capacity`.
// all[ranks,experts + 1] i32 R: each rank's offsets. offsets[1,local + 1] i32 W.
struct CountRows {
  std::int64_t ranks = 0, experts = 0, local = 0, capacity = 0;
  Expr first = 0;

  static constexpr const char* kKind = "count_rows";
  static constexpr std::array kFields = {"ranks", "experts", "local", "capacity", "first"};
  bool operator==(const CountRows&) const = default;
};

// Sorts the rows that have come, which lie by rank and then by expert, by expert and then by rank. `rows` come when all
// experts have equally many, and there is room for `capacity`. With `each` every rank has as many for every expert, and
// there is no operand `all`. Forward rows may be of codes, as in Permute.
// forward: (all[ranks,experts + 1] i32 R), received[capacity,cols] R, sorted[capacity,cols] W.
// backward, the way back: all R, sorted R, received W.
struct SortByExpert {
  Pass pass = Pass::forward;
  std::int64_t ranks = 0, experts = 0, local = 0, rows = 0, capacity = 0, cols = 0;
  Expr first = 0;
  bool in_transport = false;  // as in Permute
  std::int64_t each = 0;

  static constexpr const char* kKind = "sort_by_expert";
  static constexpr std::array kFields = {"pass",     "ranks", "experts", "local",        "rows",
                                         "capacity", "cols",  "first",   "in_transport", "each"};
  bool operator==(const SortByExpert&) const = default;
};

// A product for each group of rows with a weight of its own, [n,k], one below the other. Rows of group g are
// [offsets[g], offsets[g + 1]). Where the number of rows depends on data, `rows` are those of equal groups, and
// matrices have room for `capacity`. When `equal` all groups have equally many rows, and there is no operand `offsets`.
// With scalings both factors are codes, as in Gemm, in the shapes that a grouped Quantise writes, where rows beyond
// those of a group are zeros. `transposes`: dgrad reads the copy of the transposed weights, and wgrad both transposed.
//
// forward: x[rows,k] R, weights[groups·n,k] R, (offsets[1,groups + 1] i32 R), (inverses), y[rows,n] W: y = x · Wᵀ
// dgrad:   dy[rows,n] R, weights R, offsets R, (inverses), dx[rows,k] W: dx = dy · W
// wgrad:   dy R, x R, offsets R, (inverses), dweights[groups·n,k] A: dW += dyᵀ · x
// inverses, where the scalings have a factor: inverse_a[1,groups] f32 R, inverse_b[1,groups] f32 R.
struct GroupedGemm {
  Pass pass = Pass::forward;
  std::int64_t groups = 0, rows = 0, n = 0, k = 0;
  std::int64_t capacity = 0;  // 0: rows
  bool equal = false;
  Scaling scaling_a = Scaling::none, scaling_b = Scaling::none;
  bool transposes = false, split_accumulation = false;  // of codes

  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : rows; }
  bool has_codes() const { return scaling_a != Scaling::none; }
  bool has_factors() const { return rule_of(scaling_a).has_factor; }
  std::size_t inverse_index() const { return equal ? 2 : 3; }
  GroupedRows grouped() const { return {groups, rows, capacity, equal}; }
  GroupedRows grouped_weights() const { return {groups, groups * n, 0, true}; }
  static constexpr const char* kKind = "grouped_gemm";
  static constexpr std::array kFields = {"pass",
                                         "groups",
                                         "rows",
                                         "n",
                                         "k",
                                         "capacity",
                                         "equal",
                                         "scaling_a",
                                         "scaling_b",
                                         "transposes",
                                         "split_accumulation"};
  bool operator==(const GroupedGemm&) const = default;
};

// An expert's activation times the probability of its row: SwiGLU of [gate, up] when `gated`, else GELU. With
// `capacity`, as in GroupedGemm, the first operand is offsets[1,groups + 1] i32, whose last says how many rows there
// are.
// forward: (offsets R), x[rows,in_cols()] R, p[rows,1] R, y[rows,cols] W.
// dgrad:   (offsets R), dy R, x R, p R, dx W, dp[rows,1] W.
struct WeightedActivation {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0;
  bool gated = true;
  std::int64_t groups = 0, capacity = 0;

  std::int64_t matrix_rows() const { return capacity > 0 ? capacity : rows; }
  std::int64_t in_cols() const { return gated ? 2 * cols : cols; }
  static constexpr const char* kKind = "weighted_activation";
  static constexpr std::array kFields = {"pass", "rows", "cols", "gated", "groups", "capacity"};
  bool operator==(const WeightedActivation&) const = default;
};

// Rows times the sigmoid of a number each: the gate of a shared expert.
// forward: x[rows,cols] R, logit[rows,1] R, y W.
// dgrad:   dy R, x R, logit R, dx W, dlogit[rows,1] W.
struct GateRows {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0;

  static constexpr const char* kKind = "gate_rows";
  static constexpr std::array kFields = {"pass", "rows", "cols"};
  bool operator==(const GateRows&) const = default;
};

OperandList operands(const Route& work);
OperandList operands(const BalanceLoss& work);
OperandList operands(const MeanCounts& work);
OperandList operands(const CountLoads& work);
OperandList operands(const MoveBias& work);
OperandList operands(const SortTokens& work);
OperandList operands(const Permute& work);
OperandList operands(const CountRows& work);
OperandList operands(const SortByExpert& work);
OperandList operands(const GroupedGemm& work);
OperandList operands(const WeightedActivation& work);
OperandList operands(const GateRows& work);
std::string sizes_text(const Route& work);
std::string sizes_text(const BalanceLoss& work);
std::string sizes_text(const MeanCounts& work);
std::string sizes_text(const CountLoads& work);
std::string sizes_text(const MoveBias& work);
std::string sizes_text(const SortTokens& work);
std::string sizes_text(const Permute& work);
std::string sizes_text(const CountRows& work);
std::string sizes_text(const SortByExpert& work);
std::string sizes_text(const GroupedGemm& work);
std::string sizes_text(const WeightedActivation& work);
std::string sizes_text(const GateRows& work);
double counted_flops(const GroupedGemm& work);

// A work of the router or of experts.
template <class W>
concept OfExperts = std::is_same_v<W, Route> || std::is_same_v<W, BalanceLoss> || std::is_same_v<W, MeanCounts> ||
    std::is_same_v<W, CountLoads> || std::is_same_v<W, MoveBias> || std::is_same_v<W, SortTokens> ||
    std::is_same_v<W, Permute> || std::is_same_v<W, CountRows> || std::is_same_v<W, SortByExpert> ||
    std::is_same_v<W, GroupedGemm> || std::is_same_v<W, WeightedActivation> || std::is_same_v<W, GateRows>;

}  // namespace stretto
