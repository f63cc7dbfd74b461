#include "sim/cost/features.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/overloaded.hpp"
#include "model/ring.hpp"

namespace stretto::sim {
namespace {

std::vector<double> streaming(std::int64_t elements) {
  const double n = double(elements);
  return {1, n, std::max(0.0, n - kPrivateElements), std::max(0.0, n - kSharedElements)};
}
std::vector<double> row_wise(std::int64_t rows, std::int64_t cols) {
  return {1, double(rows), double(rows) * double(cols)};
}

// Returns the type in which an operation computes: a product's own type, otherwise the step's.
Dtype type_of(const Schedule& schedule, const Operation& operation) {
  return std::holds_alternative<Gemm>(operation.work) ? product_type(schedule, operation) : schedule.compute_dtype;
}

template <class W, class... Kinds>
constexpr bool kIsOneOf = (std::is_same_v<W, Kinds> || ...);

// Returns the result's type for kinds of work that have results of two and of four bytes in mixed precision, which is
// much of their cost. The last written operand decides; a single number does not count.
std::string result_type(const Schedule& schedule, const Operation& operation) {
  const bool varies = std::visit(
      []<class W>(const W&) {
        constexpr bool is_one =
            OfExperts<W> || OfLinearAttention<W> ||
            kIsOneOf<W, Attention, AttentionProduct, Softmax, AttentionMerge, SplitHeads, PackKv, JoinQkv, Rope,
                     LatentHeads, LayerNorm, RmsNorm, Dropout, Embedding, CrossEntropy, VocabStats, ScaledCast, Amax,
                     UpdateScale, Quantise, TransposeCodes, AdamW, Collective, PointToPoint>;
        constexpr bool is_other = kIsOneOf<W, Gemm, Elementwise, Fill, Cast, LocalReduce, SumSquares>;
        static_assert(is_one != is_other, "say which it is");
        return is_other;
      },
      operation.work);
  if (!varies || type_of(schedule, operation) != Dtype::bf16) return "";
  for (auto access = operation.accesses.rbegin(); access != operation.accesses.rend(); ++access)
    if (access->view.rows * access->view.cols > 1) {
      const Dtype written = schedule.dtype_of(access->view);
      return written == Dtype::bf16 ? "" : "_" + std::string(name_of(written));
    }
  return "";
}

std::string suffix(Pass pass) { return std::string("_") + name_of(pass); }

// Norms that accumulate have another cost key than norms that write.
template <class Norm>
WorkCost norm_cost(const char* name, const Norm& norm, const Operation& operation) {
  const bool writes_dx = norm.pass == Pass::dgrad || norm.pass == Pass::backward;
  const bool adds = writes_dx && operation.accesses.back().mode == AccessMode::accumulate;
  return {name + suffix(norm.pass) + (adds ? "_acc" : ""), row_wise(norm.all_rows(), norm.cols), DemandClass::vector};
}

// Returns the operations that a fused one stands for.
std::vector<Operation> apart(const Operation& whole) {
  std::vector<Operation> result;
  for (const Part& part : parts_of(whole.work)) {
    Operation operation = whole;
    operation.work = part.work;
    operation.accesses.clear();
    for (const Part::Operand& operand : part.operands) operation.accesses.push_back(whole.accesses[operand.index]);
    result.push_back(std::move(operation));
  }
  return result;
}

}  // namespace

WorkCost work_cost(const Schedule& schedule, const Operation& operation) {
  const auto operand_type = [&](std::size_t i) { return schedule.dtype_of(operation.accesses[i].view); };
  // Rows of codes are moved as elements of as many bytes.
  const auto rows_of_bytes = [&](std::int64_t rows, std::int64_t cols, Dtype dtype) {
    std::vector<double> features = row_wise(rows, cols);
    if (is_code(dtype)) features.back() *= double(bytes_of(dtype)) / double(bytes_of(schedule.compute_dtype));
    return features;
  };
  WorkCost cost = std::visit(
      Overloaded{
          [&](const Gemm& g) -> WorkCost {
            const double m = double(g.m), n = double(g.n), k = double(g.k);
            std::string key = std::string("gemm_") + (g.trans_a ? 't' : 'n') + (g.trans_b ? 't' : 'n');
            if (g.bias) key += "_bias";
            if (g.epilogue != GemmEpilogue::none) key += std::string("_") + name_of(g.epilogue);
            if (operation.accesses.back().mode == AccessMode::accumulate) key += "_acc";
            if (g.has_codes()) key += std::string("_") + name_of(g.scaling_a);
            return {key, {1, m * n * k, m * k, k * n, m * n}, DemandClass::gemm};
          },
          [&](const Attention& a) -> WorkCost {
            // Features: calls of the blocks of queries; then the work for each query, each element of a query, each
            // score that counts and each product of a score (exec/host/kernels/attention.cpp; fused kernels of GPUs do
            // likewise). Half of the products are as wide as queries, half as values.
            const double bh = double(a.batch) * double(a.heads), s = double(a.query_tokens()),
                         d = double(a.head_dim + a.width_of_values()) / 2;
            const double blocks = double((a.query_tokens() + kAttentionQueryBlock - 1) / kAttentionQueryBlock);
            const AttentionPairs pairs = attention_pairs(a);
            // GPUs have other kernels for grouped queries.
            const bool is_grouped = a.kv_heads != a.heads && operand_type(0) == Dtype::bf16;
            return {std::string("attention") + (is_grouped ? "_grouped" : "") + (a.dropout > 0 ? "_dropout" : "") +
                        suffix(a.pass),
                    {bh * blocks, bh * s, bh * s * d, bh * pairs.count, bh * pairs.multiplied * d},
                    DemandClass::attention};
          },
          [&](const AttentionMerge& m) -> WorkCost {
            const double heads = double(m.batch) * double(m.heads) * double(m.tokens);
            return {"attention_merge",
                    {1, heads * double(m.parts), heads * double(m.parts + 1) * double(m.head_dim)},
                    DemandClass::vector};
          },
          [&](const PackKv& p) -> WorkCost {
            return {"pack_kv", streaming(p.rows * p.kv_cols()), DemandClass::memory};
          },
          [&](const JoinQkv& j) -> WorkCost {
            const double read = double(j.parts * j.q_cols() + j.sums * j.kv_cols()),
                         written = double(j.q_cols() + j.kv_cols());
            return {"join_qkv", {1, double(j.rows) * (read + written)}, DemandClass::vector};
          },
          [&](const SplitHeads& h) -> WorkCost {
            return {"split_heads", streaming(h.rows * h.cols()), DemandClass::memory};
          },
          [&](const AttentionProduct& a) -> WorkCost {
            const double heads = double(a.batch) * double(a.heads), s = double(a.seq), d = double(a.head_dim);
            return {kind_of(a), {1, heads, heads * s * d, heads * s * s, heads * s * s * d}, DemandClass::gemm};
          },
          [&](const Softmax& s) -> WorkCost {
            return {std::string("softmax") + suffix(s.pass), row_wise(s.rows, s.cols), DemandClass::vector};
          },
          [&](const Rope& r) -> WorkCost {
            const double rows = double(r.rows), d = double(r.head_dim);
            return {std::string("rope") + suffix(r.pass),
                    {1, double(r.parts.tokens(r.seq)) * d, rows * double(r.heads + r.kv_heads) * d},
                    DemandClass::vector};
          },
          [&](const LatentHeads& h) -> WorkCost {
            return {std::string("latent_heads") + suffix(h.pass),
                    {1, double(h.rows) * double(h.rope), double(h.rows) * double(h.kv_cols())},
                    DemandClass::vector};
          },
          [&](const LayerNorm& n) { return norm_cost("layernorm", n, operation); },
          [&](const RmsNorm& n) { return norm_cost("rmsnorm", n, operation); },
          [&](const Elementwise& e) -> WorkCost {
            return {kind_of(e), streaming(e.rows * e.cols), DemandClass::vector};
          },
          [&](const Dropout& d) -> WorkCost {
            return {std::string("dropout") + (d.keeps_mask ? "_mask" : "") + suffix(d.pass), streaming(d.rows * d.cols),
                    DemandClass::vector};
          },
          [&](const Route& r) -> WorkCost {
            return {std::string("route") + suffix(r.pass), row_wise(r.rows, r.experts), DemandClass::vector};
          },
          [&](const BalanceLoss& b) -> WorkCost {
            return {std::string("balance_loss") + suffix(b.pass), row_wise(b.rows, b.experts), DemandClass::vector};
          },
          // Moves as many numbers as a move of one layer's biases.
          [&](const MeanCounts& m) -> WorkCost {
            return {"move_bias", streaming(m.experts), DemandClass::vector};
          },
          [&](const CountLoads& c) -> WorkCost {
            return {"count_loads", {1, double(c.experts), double(c.rows * c.topk)}, DemandClass::vector};
          },
          [&](const MoveBias& m) -> WorkCost {
            return {"move_bias", streaming(m.rows * m.experts), DemandClass::vector};
          },
          [&](const SortTokens& s) -> WorkCost {
            return {"sort_tokens", {1, double(s.experts), double(s.rows * s.topk)}, DemandClass::vector};
          },
          [&](const Permute& p) -> WorkCost {
            return {std::string("permute") + suffix(p.pass), rows_of_bytes(p.sorted_rows(), p.cols, operand_type(1)),
                    DemandClass::memory};
          },
          [&](const CountRows& c) -> WorkCost {
            return {"count_rows", row_wise(c.ranks, c.local), DemandClass::memory};
          },
          [&](const SortByExpert& s) -> WorkCost {
            return {std::string("sort_by_expert") + suffix(s.pass),
                    rows_of_bytes(s.rows, s.cols, operand_type(operation.accesses.size() - 1)), DemandClass::memory};
          },
          [&](const GroupedGemm& g) -> WorkCost {
            // Each group's product packs its own weight.
            const double rows = double(g.rows), n = double(g.n), k = double(g.k), weights = double(g.groups) * n * k;
            const std::string of_codes = g.has_codes() ? std::string("_") + name_of(g.scaling_a) : "";
            return {std::string("grouped_gemm") + suffix(g.pass) + of_codes,
                    {1, double(g.groups), rows * n * k, rows * (n + k), weights},
                    DemandClass::gemm};
          },
          [&](const WeightedActivation& w) -> WorkCost {
            return {std::string("weighted_") + (w.gated ? "swiglu" : "gelu") + suffix(w.pass), row_wise(w.rows, w.cols),
                    DemandClass::vector};
          },
          [&](const GateRows& g) -> WorkCost {
            return {std::string("gate_rows") + suffix(g.pass), row_wise(g.rows, g.cols), DemandClass::vector};
          },
          [&](const ShortConv& c) -> WorkCost {
            return {std::string("short_conv") + suffix(c.pass), row_wise(c.rows, c.channels), DemandClass::vector};
          },
          [&](const LinearGates& g) -> WorkCost {
            return {std::string("linear_gates") + suffix(g.pass), row_wise(g.rows, g.heads), DemandClass::vector};
          },
          [&](const LinearAttention& a) -> WorkCost {
            // Features: calls of chunks; then products of a chunk with itself, and of its tokens with the state.
            const double heads = double(a.batch * a.heads), tokens = double(a.seq), k = double(a.key_dim),
                         v = double(a.value_dim);
            const double chunks = double((a.seq + kLinearChunk - 1) / kLinearChunk);
            return {std::string("linear_attention") + (a.delta ? "_delta" : "") + suffix(a.pass),
                    {1, heads * chunks, heads * tokens * (k + v), heads * tokens * k * v},
                    DemandClass::attention};
          },
          [&](const GatedNorm& n) -> WorkCost {
            return {std::string("gated_norm") + suffix(n.pass), row_wise(n.rows, n.groups * n.cols),
                    DemandClass::vector};
          },
          [&](const Embedding& e) -> WorkCost {
            const std::string key = e.positions ? "embedding" : "token_embedding";
            return {key + suffix(e.pass), row_wise(e.rows, e.cols), DemandClass::vector};
          },
          [&](const CrossEntropy& c) -> WorkCost {
            return {"cross_entropy", row_wise(c.rows, c.cols), DemandClass::vector};
          },
          [&](const VocabStats& v) -> WorkCost {
            return {"vocab_stats", row_wise(v.rows, v.cols), DemandClass::vector};
          },
          [&](const Fill& f) -> WorkCost {
            return {"fill", streaming(f.elements), DemandClass::memory};
          },
          [&](const Cast& c) -> WorkCost {
            const bool is_copy = operand_type(0) == operand_type(1);
            return {is_copy ? "copy" : "cast", streaming(c.elements), DemandClass::memory};
          },
          [&](const ScaledCast& c) -> WorkCost {
            // Memory-bound: it costs as much as a cast from f32 to bf16, of four and two bytes an element, with as many
            // bytes.
            const bool is_forward = c.pass == Pass::forward;
            const double wide = double(bytes_of(operand_type(is_forward ? 0 : 1)));
            const double bytes = double(c.shards) * (wide * double(c.elements) + double(c.packed()));
            return {"cast", streaming(std::int64_t(bytes / 6)), DemandClass::memory};
          },
          [&](const Amax& a) -> WorkCost {
            return {a.hadamard ? "amax_hadamard" : "amax", streaming(a.rows * a.cols), DemandClass::memory};
          },
          [&](const UpdateScale& u) -> WorkCost {
            return {"update_scale", streaming(u.elements * (u.history + 1)), DemandClass::memory};
          },
          [&](const Quantise& q) -> WorkCost {
            std::string key = std::string("quantise_") + name_of(q.scaling);
            if (!q.rowwise) key += "_second";
            if (q.columnwise != ColumnCopy::none) key += std::string("_") + name_of(q.columnwise);
            if (q.hadamard) key += "_hadamard";
            if (q.stochastic) key += "_stochastic";
            if (q.records) key += "_amax";
            if (q.of_codes) key += "_of_codes";
            return {key, streaming(q.rows * q.cols), DemandClass::memory};
          },
          [&](const TransposeCodes& t) -> WorkCost {
            return {std::string("transpose_codes_") + name_of(t.scaling), streaming(t.rows * t.cols),
                    DemandClass::memory};
          },
          [&](const LocalReduce& r) -> WorkCost {
            // The count is in elements of the sum's type.
            const double part = double(bytes_of(operand_type(0))) / double(bytes_of(operand_type(1)));
            return {"local_reduce", {1, (part * double(r.parts) + 1) * double(r.elements)}, DemandClass::vector};
          },
          [&](const SumSquares& s) -> WorkCost {
            return {"sum_squares", streaming(s.elements), DemandClass::memory};
          },
          [&](const AdamW& a) -> WorkCost {
            return {"adamw", streaming(a.elements), DemandClass::memory};
          },
          [&](const Collective&) -> WorkCost { return {}; },
          [&](const PointToPoint&) -> WorkCost { return {}; },
      },
      operation.work);
  cost.key += result_type(schedule, operation) + "_" + std::string(name_of(type_of(schedule, operation)));
  for (const Operation& part : apart(operation)) cost.parts.push_back(work_cost(schedule, part));
  return cost;
}

WorkCost movement_cost(const Collective& collective, Dtype dtype, std::int64_t members, bool in_place) {
  // A reduce-scatter reads its slice of every member's buffer, an all-gather copies every other member's slice; each
  // phase of an all-reduce does one of these.
  const double slice = double(collective.elements) / double(members);
  const bool sums = rule_of(collective.kind).reduces();
  const double touched = slice * double(sums ? members + 1 : 2 * (in_place ? members - 1 : members));
  // Bytes are copied as half as many elements of two bytes.
  const bool is_byte = dtype == Dtype::e4m3;
  if (dtype == Dtype::i32) dtype = Dtype::f32;  // as many bytes
  return {std::string("move_") + name_of(like_equal_slices(collective.kind)) + "_" +
              std::string(name_of(is_byte ? Dtype::bf16 : dtype)),
          {1, is_byte ? touched / 2 : touched},
          DemandClass::memory};
}

WorkCost movement_cost(const PointToPoint& message, Dtype dtype) {
  // The copy of an all-gather: one slice read, one written.
  return {"move_all_gather_" + std::string(name_of(dtype)), {1, 2 * double(message.elements)}, DemandClass::memory};
}

WorkCost on_blocks(WorkCost movement, double blocks, double kernels) {
  const double touched = movement.features.back();
  movement.features = {1, touched / blocks, touched * kernels};
  return movement;
}

namespace {

WorkCost nccl_cost(const char* kind, std::vector<double> features, std::int64_t bytes, std::optional<int> channels) {
  const double n = static_cast<double>(bytes);
  features.push_back(n);
  if (channels) features.push_back(n / *channels);
  return {std::string("nccl_") + kind + (channels ? "_channels" : ""), features, DemandClass::memory};
}

}  // namespace

WorkCost nccl_cost(const Collective& collective, Dtype dtype, std::int64_t members, std::optional<int> channels) {
  const RingCost ring = ring_cost(collective.kind, dtype, collective.elements, members);
  return nccl_cost(name_of(like_equal_slices(collective.kind)), {1, static_cast<double>(ring.steps)}, ring.edge_bytes,
                   channels);
}
WorkCost nccl_cost(const PointToPoint& message, Dtype dtype, std::optional<int> channels) {
  return nccl_cost("message", {1}, message.elements * bytes_of(dtype), channels);
}

WorkCost copy_cost(std::int64_t bytes, double copies) {
  const double n = static_cast<double>(bytes);
  return {"copy_engine", {1, n, n * copies}, DemandClass::memory};
}

}  // namespace stretto::sim
