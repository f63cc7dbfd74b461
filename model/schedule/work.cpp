#include "model/schedule/work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/overloaded.hpp"
#include "base/values_of.hpp"

namespace stretto {
namespace {

std::string dims(std::int64_t a, std::int64_t b) { return std::to_string(a) + "x" + std::to_string(b); }

// Returns "rows 4 cols 6", for kinds that have no shorter text below.
template <class Kind>
std::string fields_text(const Kind& kind) {
  std::string text;
  const auto add =
      Overloaded{[&](const char* name, const Expr& field) { text += std::string(" ") + name + " " + field.text(); },
                 [&](const char* name, const auto& field) {
                   if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>)
                     text += std::string(" ") + name + " " + std::string(name_of(field));
                   else
                     text += std::string(" ") + name + " " + std::to_string(field);
                 }};
  for_each_field(kind, add);
  return text.substr(1);
}

// Returns " keys 3+1/4": one part of four, the one after the third.
std::string parts_text(const char* what, const SequenceParts& parts) {
  if (parts.of == 1) return "";
  return what + parts.first.text() + "+" + std::to_string(parts.count) + "/" + std::to_string(parts.of);
}

std::string heads_text(std::int64_t heads, std::int64_t kv_heads) {
  return " heads " + std::to_string(heads) + (kv_heads == heads ? "" : " kv " + std::to_string(kv_heads));
}

}  // namespace

const char* name_of(Pass pass) { return name_in({"forward", "dgrad", "wgrad", "backward"}, pass); }

double causal_attention_share(std::int64_t seq) {
  double multiplied = 0;
  for (std::int64_t begin = 0; begin < seq; begin += kAttentionQueryBlock) {
    const std::int64_t end = std::min(begin + kAttentionQueryBlock, seq);
    multiplied += double(end - begin) * double(end);
  }
  return multiplied / (double(seq) * double(seq));
}

namespace {

// Sums over pairs of positions of r^distance, the probability that both are in one document, where each token ends its
// document with probability 1 − r = 1 / mean.
class OneDocument {
 public:
  // Documents of fewer tokens count as if they had two.
  explicit OneDocument(double mean) : mean_(std::max(mean, 2.0)), log_r_(std::log1p(-1 / mean_)) {}
  double power(double exponent) const { return std::exp(exponent * log_r_); }
  double sum(double n) const { return -std::expm1(n * log_r_) * mean_; }  // 1 + r + … + r^(n − 1)
  // Keys before a query, of the `n` that are there, that it sees: r + … + r^n.
  double before(double n) const { return power(1) * sum(n); }
  // Pairs of n queries with these and earlier ones as keys: Σ (n − d) r^d.
  double below_diagonal(double n) const { return mean_ * (n - before(n)); }
  // Keys of a run of `n` that a query sees which is `distance` positions after the run's first.
  double seen(double distance, double n) const { return power(distance - (n - 1)) * sum(n); }

 private:
  double mean_, log_r_;
};

// Adds the pairs of a run of queries with a run of keys at or before it.
void add_pairs(AttentionPairs& pairs, const OneDocument& documents, const SequenceRun& q, const SequenceRun& k) {
  const double keys = double(k.length);
  const bool is_own = k.position == q.position;
  const auto distance = double(q.position - k.position);
  pairs.count += is_own ? documents.below_diagonal(double(q.length))
                        : documents.seen(distance, keys) * documents.sum(double(q.length));
  // A block multiplies all keys from the document of its first query on.
  for (std::int64_t begin = 0; begin < q.length; begin += kAttentionQueryBlock) {
    const auto rows = double(std::min(kAttentionQueryBlock, q.length - begin)), at = double(begin);
    pairs.multiplied += rows * (is_own ? documents.before(at) + rows : documents.seen(distance + at, keys));
  }
}

}  // namespace

AttentionPairs attention_pairs(const Attention& attention) {
  SequenceParts queries = attention.queries, keys = attention.keys;
  queries.first = queries.first.eval({});
  keys.first = keys.first.eval({});
  AttentionPairs pairs;
  for (const SequenceRun& q : runs_of(queries, attention.seq, 1, 0))
    for (const SequenceRun& k : runs_of(keys, attention.seq, 1, 0)) {
      if (attention.by_document && attention.document_tokens > 0) {
        if (k.position <= q.position) add_pairs(pairs, OneDocument(attention.document_tokens), q, k);
        continue;
      }
      const double all = double(q.length) * double(k.length), n = double(q.length);
      if (!attention.causal || k.position < q.position) {
        pairs.count += all;
        pairs.multiplied += all;
      } else if (k.position == q.position) {  // chunks have one length, so they are equal
        pairs.count += n * (n + 1) / 2;
        pairs.multiplied += all * causal_attention_share(q.length);
      }
    }
  return pairs;
}

bool is_communication(const Work& work) {
  return std::holds_alternative<Collective>(work) || std::holds_alternative<PointToPoint>(work);
}

std::uint32_t communicator_of(const Work& work) {
  const auto* message = std::get_if<PointToPoint>(&work);
  return message ? message->communicator : std::get<Collective>(work).communicator;
}

const char* kind_of(const Work& work) {
  return std::visit(Overloaded{
                        [](const auto& w) { return std::decay_t<decltype(w)>::kKind; },
                        [](const AttentionProduct& a) { return name_of(a.product); },
                        [](const Elementwise& e) { return name_of(e.fn); },
                        [](const Collective& c) { return name_of(c.kind); },
                        [](const PointToPoint& p) { return p.is_send ? "send" : "receive"; },
                    },
                    work);
}

const char* name_of(ColumnCopy copy) { return name_in({"none", "plain", "transposed"}, copy); }
const char* name_of(QuantisedLayer layer) {
  return name_in({"qkv", "proj", "fc1", "fc2", "q", "q_down", "q_up", "kv_down", "kv_up", "shared.fc1", "shared.fc2",
                  "experts.fc1", "experts.fc2", "in_proj", "out_proj"},
                 layer);
}

const char* name_of(GemmEpilogue epilogue) {
  return name_in({"none", "gelu", "gelu_backward", "bias_gradient", "residual", "gelu_backward_bias_gradient"},
                 epilogue);
}

const char* name_of(AttentionFactor product) {
  return name_in(
      {"attention_scores", "attention_context", "attention_dv", "attention_dp", "attention_dq", "attention_dk"},
      product);
}

const char* name_of(ElementwiseFn fn) {
  return name_in({"gelu", "gelu_backward", "add", "column_sum", "bias_add", "swiglu", "swiglu_backward", "accumulate"},
                 fn);
}

const char* name_of(DropoutSite site) { return name_in({"attention", "embedding", "residual_1", "residual_2"}, site); }

CollectiveRule rule_of(CollectiveKind kind) {
  using enum CollectivePhase::Slice;
  constexpr CollectivePhase gather{.source = of_giver, .target = of_giver},
      sum{.source = of_getter, .target = of_getter, .reduces = true},
      gather_sums{.source = of_giver, .target = of_giver, .from_result = true},
      exchange{.source = of_getter, .target = of_giver};
  switch (kind) {
    case CollectiveKind::all_gather:
      return {.name = "all_gather", .gives_shard = true, .phases = 1, .phase = {gather}};
    case CollectiveKind::reduce_scatter:
      return {.name = "reduce_scatter", .gets_shard = true, .phases = 1, .phase = {sum}};
    case CollectiveKind::all_reduce:
      return {.name = "all_reduce", .one_buffer = true, .phases = 2, .phase = {sum, gather_sums}};
    case CollectiveKind::all_to_all:
      return {.name = "all_to_all", .phases = 1, .phase = {exchange}};
    case CollectiveKind::dispatch:
      return {.name = "dispatch", .of_rows = true, .phases = 1, .phase = {exchange}};
    case CollectiveKind::combine:
      return {.name = "combine", .of_rows = true, .phases = 1, .phase = {exchange}};
  }
  return {};
}

CollectiveKind like_equal_slices(CollectiveKind kind) {
  return rule_of(kind).of_rows ? CollectiveKind::all_to_all : kind;
}

const char* name_of(CollectiveKind kind) { return rule_of(kind).name; }
const char* name_of(Reduction reduction) { return name_in({"sum", "max", "ring_sum"}, reduction); }

template <class Norm>
std::string describe_norm(const Norm& norm) {
  return std::string(name_of(norm.pass)) + " " + dims(norm.rows, norm.cols) +
         (norm.heads > 1 ? " heads " + std::to_string(norm.heads) : "");
}

std::string describe(const Work& work) {
  const std::string kind = kind_of(work);
  return kind + " " +
         std::visit(
             Overloaded{
                 [](const auto& w) { return fields_text(w); },
                 [](const Gemm& g) {
                   return dims(g.m, g.n) + "x" + std::to_string(g.k) + " " + (g.trans_a ? "t" : "n") +
                          (g.trans_b ? "t" : "n") + (g.bias ? " +bias" : "") +
                          (g.epilogue == GemmEpilogue::none ? "" : std::string(" +") + name_of(g.epilogue)) +
                          (g.has_codes() ? std::string(" ") + name_of(g.scaling_a) : "") +
                          (g.scaling_b != g.scaling_a ? std::string(" ") + name_of(g.scaling_b) : "") +
                          (g.split_accumulation ? " split" : "");
                 },
                 [](const Attention& a) {
                   return std::string(name_of(a.pass)) + " batch " + std::to_string(a.batch) +
                          heads_text(a.heads, a.kv_heads) + " seq " + std::to_string(a.seq) + " dim " +
                          std::to_string(a.head_dim) +
                          (a.value_dim > 0 ? " values " + std::to_string(a.value_dim) : "") +
                          (a.causal ? " causal" : "") + (a.dropout > 0 ? " dropout" : "") +
                          (a.by_document ? " by document" : "") + parts_text(" queries ", a.queries) +
                          parts_text(" keys ", a.keys);
                 },
                 [](const AttentionMerge& m) {
                   return std::to_string(m.parts) + " parts batch " + std::to_string(m.batch) +
                          heads_text(m.heads, m.heads) + " tokens " + std::to_string(m.tokens) + " dim " +
                          std::to_string(m.head_dim);
                 },
                 [](const SplitHeads& h) {
                   return std::string(name_of(h.pass)) + " " + dims(h.rows, h.cols()) + " by " +
                          std::to_string(h.groups);
                 },
                 [](const AttentionProduct& a) {
                   return "batch " + std::to_string(a.batch) + heads_text(a.heads, a.kv_heads) + " seq " +
                          std::to_string(a.seq) + " dim " + std::to_string(a.head_dim);
                 },
                 [](const Softmax& s) {
                   return std::string(name_of(s.pass)) + " " + dims(s.rows, s.cols) + (s.causal ? " causal" : "");
                 },
                 [](const Rope& r) {
                   return std::string(name_of(r.pass)) + " rows " + std::to_string(r.rows) +
                          heads_text(r.heads, r.kv_heads) + " seq " + std::to_string(r.seq) + " dim " +
                          std::to_string(r.head_dim);
                 },
                 [](const LatentHeads& h) {
                   return std::string(name_of(h.pass)) + " rows " + std::to_string(h.rows) +
                          heads_text(h.heads, h.heads) + " dim " + std::to_string(h.nope) + "+" +
                          std::to_string(h.rope) + " values " + std::to_string(h.value);
                 },
                 [](const LayerNorm& n) { return describe_norm(n); },
                 [](const RmsNorm& n) { return describe_norm(n); },
                 [](const Elementwise& e) { return dims(e.rows, e.cols); },
                 [](const Dropout& d) {
                   return std::string(name_of(d.pass)) + " " + dims(d.rows, d.cols) + (d.residual ? " +residual" : "") +
                          (d.bias ? " +bias" : "") + (d.keeps_mask ? " +mask" : "");
                 },
                 [](const Route& r) {
                   return std::string(name_of(r.pass)) + " rows " + std::to_string(r.rows) + " " +
                          std::to_string(r.topk) + " of " + std::to_string(r.experts) + " experts " + name_of(r.score) +
                          (r.biased ? " +bias" : "");
                 },
                 [](const BalanceLoss& b) {
                   return std::string(name_of(b.pass)) + " rows " + std::to_string(b.rows) + " " +
                          std::to_string(b.topk) + " of " + std::to_string(b.experts) + " experts in " +
                          std::to_string(b.sequences) + " sequences";
                 },
                 [](const MeanCounts& m) { return std::to_string(m.experts) + " experts"; },
                 [](const CountLoads& c) {
                   return dims(c.rows, c.topk) + " of " + std::to_string(c.experts) + " experts";
                 },
                 [](const MoveBias& m) { return dims(m.rows, m.experts); },
                 [](const SortTokens& s) {
                   return dims(s.rows, s.topk) + " to " +
                          (s.local > 0 ? std::to_string(s.local) + " of " : std::string()) + std::to_string(s.experts) +
                          " experts" + (s.each > 0 ? ", each " + std::to_string(s.each) : "");
                 },
                 [](const Permute& p) {
                   return std::string(name_of(p.pass)) + " " + dims(p.tokens, p.cols) + " by " +
                          std::to_string(p.copies) + (p.apart ? " apart" : "") +
                          (p.rows > 0 ? " in " + std::to_string(p.rows) + " rows" : "");
                 },
                 [](const CountRows& c) {
                   return std::to_string(c.local) + " of " + std::to_string(c.experts) + " experts from " +
                          std::to_string(c.ranks) + " ranks";
                 },
                 [](const SortByExpert& s) {
                   return std::string(name_of(s.pass)) + " " + dims(s.rows, s.cols) + " of " + std::to_string(s.local) +
                          " experts from " + std::to_string(s.ranks) + " ranks";
                 },
                 [](const GroupedGemm& g) {
                   return std::string(name_of(g.pass)) + " " + dims(g.rows, g.n) + "x" + std::to_string(g.k) + " in " +
                          std::to_string(g.groups) + " groups" +
                          (g.has_codes() ? std::string(" ") + name_of(g.scaling_a) : "") +
                          (g.scaling_b != g.scaling_a ? std::string(" ") + name_of(g.scaling_b) : "") +
                          (g.split_accumulation ? " split" : "");
                 },
                 [](const WeightedActivation& w) {
                   return std::string(name_of(w.pass)) + " " + dims(w.rows, w.cols) + (w.gated ? " gated" : "");
                 },
                 [](const GateRows& g) { return std::string(name_of(g.pass)) + " " + dims(g.rows, g.cols); },
                 [](const ShortConv& c) {
                   return std::string(name_of(c.pass)) + " " + dims(c.rows, c.channels) + " width " +
                          std::to_string(c.width) + (c.bias ? " +bias" : "");
                 },
                 [](const LinearGates& g) { return std::string(name_of(g.pass)) + " " + dims(g.rows, g.heads); },
                 [](const LinearAttention& a) {
                   return std::string(name_of(a.pass)) + " batch " + std::to_string(a.batch) +
                          heads_text(a.heads, a.key_heads) + " seq " + std::to_string(a.seq) + " dim " +
                          std::to_string(a.key_dim) + " values " + std::to_string(a.value_dim) +
                          (a.delta ? " delta" : "");
                 },
                 [](const GatedNorm& n) {
                   return std::string(name_of(n.pass)) + " " + dims(n.rows, n.cols) + " groups " +
                          std::to_string(n.groups);
                 },
                 [](const Embedding& e) {
                   return std::string(name_of(e.pass)) + " " + dims(e.rows, e.cols) + " vocab " +
                          std::to_string(e.vocab) + (e.positions ? "" : " without positions");
                 },
                 [](const CrossEntropy& c) {
                   return dims(c.rows, c.cols) + (c.shards > 1 ? " of " + std::to_string(c.shards) + " shards" : "");
                 },
                 [](const VocabStats& v) { return dims(v.rows, v.cols); },
                 [](const Fill& f) { return std::to_string(f.elements); },
                 [](const Cast& c) { return std::to_string(c.elements); },
                 [](const ScaledCast& c) { return std::string(name_of(c.pass)) + " " + dims(c.shards, c.elements); },
                 [](const Amax& a) {
                   return dims(a.rows, a.cols) + (a.hadamard ? " hadamard" : "") +
                          (a.groups > 0 ? " in " + std::to_string(a.groups) + " groups" : "");
                 },
                 [](const Quantise& q) {
                   return dims(q.rows, q.cols) + " " + std::string(name_of(q.format)) + " " + name_of(q.scaling) +
                          (q.rowwise ? " rowwise" : "") + (q.columnwise == ColumnCopy::none ? "" : " columnwise ") +
                          (q.columnwise == ColumnCopy::none ? "" : name_of(q.columnwise)) +
                          (q.hadamard ? " hadamard" : "") + (q.stochastic ? " stochastic" : "") +
                          (q.records ? " +amax" : "") + (q.of_codes ? " of codes" : "") +
                          (q.groups > 0 ? " in " + std::to_string(q.groups) + " groups" : "");
                 },
                 [](const LocalReduce& r) { return dims(r.parts, r.elements); },
                 [](const SumSquares& s) { return std::to_string(s.elements); },
                 [](const AdamW& a) {
                   return std::to_string(a.elements) + " of " + std::to_string(a.shards) + " shards";
                 },
                 [](const Collective& c) {
                   return std::to_string(c.elements) +
                          (c.reduction == Reduction::sum ? "" : std::string(" ") + name_of(c.reduction));
                 },
                 [](const PointToPoint& p) {
                   return std::to_string(p.elements) + (p.is_send ? " to " : " from ") +
                          (p.offset.is_constant() && p.offset.eval({}) > 0 ? "+" : "") + p.offset.text();
                 },
             },
             work);
}

namespace {
// A type that holds no expression. A field that may hold expressions has to be looked into, here and in evaluate().
template <class Reference, class T = std::remove_cvref_t<Reference>>
constexpr bool kHoldsNoExpr =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::vector<AdamW::Range>> ||
    std::is_same_v<T, RopeScaling> || std::is_same_v<T, YarnScaling>;
}  // namespace

bool depends_on(const Work& work, Coord axis) {
  bool depends = false;
  const auto check =
      Overloaded{[&](const char*, const Expr& field) { depends = depends || field.depends_on(axis); },
                 [&](const char*, const SequenceParts& field) { depends = depends || field.first.depends_on(axis); },
                 [](const char*, const auto& field) { static_assert(kHoldsNoExpr<decltype(field)>); }};
  std::visit([&](const auto& w) { for_each_field(w, check); }, work);
  return depends;
}

Work evaluate(const Work& work, const Coordinates& at) {
  Work result = work;
  const auto fix = Overloaded{[&](const char*, Expr& field) { field = field.eval(at); },
                              [&](const char*, SequenceParts& field) { field.first = field.first.eval(at); },
                              [](const char*, auto& field) { static_assert(kHoldsNoExpr<decltype(field)>); }};
  std::visit([&](auto& w) { for_each_field(w, fix); }, result);
  return result;
}

namespace {

std::vector<Part> parts_of_gemm(const Gemm& whole) {
  const std::size_t bias = 2, x = whole.x_index(), c = whole.c_index();
  Gemm plain = whole;
  plain.epilogue = GemmEpilogue::none;
  std::vector<Part::Operand> factors = {{0}, {1}};
  const auto product_in = [&](std::size_t result) {
    std::vector<Part::Operand> operands = factors;
    if (plain.bias) operands.push_back({bias});
    if (plain.has_factors()) operands.insert(operands.end(), {{whole.inverse_index()}, {whole.inverse_index() + 1}});
    operands.push_back({result});
    return Part{plain, std::move(operands)};
  };
  const auto apply = [&](ElementwiseFn fn) { return Elementwise{fn, whole.m, whole.n}; };
  switch (whole.epilogue) {
    case GemmEpilogue::none:
      return {};
    case GemmEpilogue::gelu:
      return {product_in(x), {apply(ElementwiseFn::gelu), {{x, true}, {c}}}};
    case GemmEpilogue::gelu_backward:
      return {product_in(c), {apply(ElementwiseFn::gelu_backward), {{c, true}, {x}, {c}}}};
    case GemmEpilogue::gelu_backward_bias_gradient:
      return {product_in(c),
              {apply(ElementwiseFn::gelu_backward), {{c, true}, {x}, {c}}},
              {apply(ElementwiseFn::column_sum), {{c, true}, {whole.s_index()}}}};
    case GemmEpilogue::bias_gradient:
      return {product_in(c), {Elementwise{ElementwiseFn::column_sum, whole.k, whole.m}, {{0}, {x}}}};
    case GemmEpilogue::residual:  // adds the bias too, in the order of bias_add
      plain.bias = false;
      if (whole.bias) return {product_in(c), {apply(ElementwiseFn::bias_add), {{x}, {c, true}, {bias}, {c}}}};
      return {product_in(c), {apply(ElementwiseFn::add), {{x}, {c, true}, {c}}}};
  }
  return {};
}

// Operands of the fused work: dy, x, stats, gamma, gradients of the weights, dx.
template <class Norm>
std::vector<Part> parts_of_norm(Norm norm, std::size_t weights) {
  if (norm.pass != Pass::backward) return {};
  std::vector<Part> parts(2);
  norm.pass = Pass::wgrad;
  parts[0] = {norm, {{0}, {1}, {2}}};
  for (std::size_t i = 0; i < weights; ++i) parts[0].operands.push_back({4 + i});
  norm.pass = Pass::dgrad;
  parts[1] = {norm, {{0}, {1}, {2}, {3}, {4 + weights}}};
  return parts;
}

}  // namespace

std::vector<Part> parts_of(const Work& work) {
  return std::visit(Overloaded{[](const Gemm& gemm) { return parts_of_gemm(gemm); },
                               [](const LayerNorm& norm) { return parts_of_norm(norm, 2); },
                               [](const RmsNorm& norm) { return parts_of_norm(norm, 1); },
                               [](const auto&) { return std::vector<Part>{}; }},
                    work);
}

double model_flops(const Work& work) {
  if (const Gemm* g = std::get_if<Gemm>(&work)) return 2.0 * double(g->m) * double(g->n) * double(g->k);
  if (const GroupedGemm* g = std::get_if<GroupedGemm>(&work))
    return 2.0 * double(g->rows) * double(g->n) * double(g->k);
  if (const Attention* a = std::get_if<Attention>(&work)) {
    // Attention has two matmuls forward (QKᵀ, PV) and four in the gradient (dV, dP, dQ, dK), half of them of seq × seq
    // × head_dim and half as wide as the values. A kernel may recompute QKᵀ in the backward pass, which is not counted.
    const double matmuls = a->pass == Pass::forward ? 2 : 4;
    // Half of all pairs count where some are masked: under context parallelism the parts of a sequence are cut so that
    // each has its share of that half.
    const double full = matmuls * 2.0 * double(a->batch) * double(a->heads) * double(a->query_tokens()) *
                        double(a->key_tokens()) * double(a->head_dim + a->width_of_values()) / 2;
    return a->causal ? full / 2 : full;
  }
  if (const AttentionProduct* a = std::get_if<AttentionProduct>(&work))
    return 2.0 * double(a->score_rows()) * double(a->seq) * double(a->head_dim) / (a->causal ? 2 : 1);
  if (const ShortConv* c = std::get_if<ShortConv>(&work))
    return 2.0 * double(c->rows) * double(c->channels) * double(c->width);
  if (const LinearAttention* a = std::get_if<LinearAttention>(&work)) {
    // Megatron-LM (training/training.py of d98e8a64, num_floating_point_operations) counts four products of a token
    // with the state for the delta rule and 3.5 for Mamba-2, and twice as many for their gradients.
    const double products = a->delta ? 4 : 3.5, times = a->pass == Pass::forward ? 1 : a->pass == Pass::dgrad ? 2 : 0;
    return times * products * 2 * double(a->rows()) * double(a->heads) * double(a->key_dim * a->value_dim);
  }
  return 0;
}

}  // namespace stretto
