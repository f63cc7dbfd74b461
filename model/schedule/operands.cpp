#include "model/schedule/operands.hpp"

#include <algorithm>
#include <variant>

#include "model/schedule/operand_specs.hpp"

namespace stretto {
namespace operand_specs {
namespace {

// First positions of documents, of sequences of that many rows.
OperandSpec documents_of(std::int64_t batch, std::int64_t seq) {
  return {kDocuments, "R", batch, seq, Shape::matrix, Type::i32};
}

// LayerNorm has a beta, and a mean in its stats; RMSNorm has neither.
OperandList norm_operands(Pass pass, std::int64_t rows, std::int64_t cols, std::int64_t heads, bool has_beta) {
  if (rows < 1 || cols < 1 || heads < 1) return bad("dimensions must be positive");
  const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, rows, heads * cols}; };
  const OperandSpec stats{"stats", pass == Pass::forward ? "W" : "R", rows, heads * (has_beta ? 2 : 1)};
  const OperandSpec gamma = vector_of("gamma", "R", cols);
  if (pass == Pass::dgrad) return {{full("dy", "R"), full("x", "R"), stats, gamma, full("dx", "WA")}, ""};
  OperandList list;
  if (pass == Pass::forward) {
    list.operands = {full("x", "R"), gamma};
    if (has_beta) list.operands.push_back(vector_of("beta", "R", cols));
    list.operands.insert(list.operands.end(), {full("y", "W"), stats});
  } else {
    list.operands = {full("dy", "R"), full("x", "R"), stats};
    if (pass == Pass::backward) list.operands.push_back(gamma);
    list.operands.push_back(vector_of("dgamma", "A", cols));
    if (has_beta) list.operands.push_back(vector_of("dbeta", "A", cols));
    if (pass == Pass::backward) list.operands.push_back(full("dx", "WA"));
  }
  return list;
}

struct ListOperands {
  std::int64_t group_size;

  OperandList operator()(const Gemm& g) const {
    if (g.m < 1 || g.n < 1 || g.k < 1) return bad("m, n and k must be positive");
    OperandList list;
    const std::int64_t a_rows = g.trans_a ? g.k : g.m, a_cols = g.trans_a ? g.m : g.k;
    const std::int64_t b_rows = g.trans_b ? g.n : g.k, b_cols = g.trans_b ? g.k : g.n;
    if (g.has_codes()) {
      const ScalingRule a = rule_of(g.scaling_a), b = rule_of(g.scaling_b);
      if (a.block != b.block || a.has_factor != b.has_factor) return bad("A and B are scaled in different ways");
      if (g.epilogue == GemmEpilogue::bias_gradient) return bad("sums of codes are no bias gradient");
      const ScaledAlong along_a = g.trans_a ? ScaledAlong::columns : ScaledAlong::rows,
                        along_b = g.trans_b ? ScaledAlong::rows : ScaledAlong::columns;
      const Dtype format = a.scale_bytes == 1 && a.block == 16 ? Dtype::e2m1x2 : Dtype::e4m3;  // e5m2 has its shapes
      for (const std::string& problem : {problem_of(format, g.scaling_a, along_a, a_rows, a_cols),
                                         problem_of(format, g.scaling_b, along_b, b_rows, b_cols)})
        if (!problem.empty()) return bad(problem);
      list.operands = {codes_of("A", "R", format, g.scaling_a, along_a, a_rows, a_cols),
                       codes_of("B", "R", format, g.scaling_b, along_b, b_rows, b_cols)};
    } else {
      if (g.scaling_b != Scaling::none) return bad("A and B are scaled in different ways");
      list.operands = {{"A", "R", a_rows, a_cols}, {"B", "R", b_rows, b_cols}};
    }
    if (g.bias) list.operands.push_back(vector_of("bias", "R", g.n));
    // The epilogue computes C from the product and X.
    const bool makes = g.epilogue == GemmEpilogue::gelu || g.epilogue == GemmEpilogue::gelu_backward ||
                       g.sums_columns() || g.epilogue == GemmEpilogue::residual;
    if (g.epilogue == GemmEpilogue::bias_gradient && !g.trans_a) return bad("bias_gradient needs trans_a");
    if (g.epilogue == GemmEpilogue::bias_gradient) list.operands.push_back(vector_of("X", "A", g.m));
    if (makes) list.operands.push_back({"X", g.epilogue == GemmEpilogue::gelu ? "W" : "R", g.m, g.n});
    if (g.sums_columns()) list.operands.push_back(vector_of("S", "A", g.n));
    if (g.has_factors())
      list.operands.insert(list.operands.end(),
                           {vector_of("inverse_a", "R", 1, Type::f32), vector_of("inverse_b", "R", 1, Type::f32)});
    list.operands.push_back({"C", makes ? "W" : "WA", g.m, g.n});
    return list;
  }

  OperandList operator()(const Attention& a) const {
    if (a.batch < 1 || a.heads < 1 || a.kv_heads < 1 || a.seq < 1 || a.head_dim < 1)
      return bad("dimensions must be positive");
    if (a.heads % a.kv_heads != 0) return bad("kv_heads must divide heads");
    for (const SequenceParts& parts : {a.queries, a.keys})
      if (const std::string problem = problem_of(parts, a.seq); !problem.empty()) return bad(problem);
    if (a.queries.of != a.keys.of) return bad("queries and keys must be parts of one sequence");
    if (!a.kv_apart && a.queries != a.keys) return bad("queries and keys of one operand must be the same tokens");
    if (a.value_dim < 0 || (a.kv_apart && a.value_dim > 0))
      return bad("values of another width are in one operand with q");
    const std::int64_t tokens = a.batch * a.query_tokens(), out = a.out_cols(), hidden = a.heads * a.head_dim;
    const std::int64_t keys = a.batch * a.key_tokens(), kv = a.kv_cols();
    const bool is_forward = a.pass == Pass::forward;
    if (has_wgrad(a.pass)) return bad("attention has no weights");
    OperandList list;
    list.operands.push_back({"qkv", "R", tokens, a.qkv_cols()});
    if (a.kv_apart) list.operands.push_back({"kv", "R", keys, kv});
    list.operands.push_back({"out", is_forward ? "W" : "R", tokens, out});
    list.operands.push_back({"lse", is_forward ? "W" : "R", a.batch * a.heads, a.query_tokens()});
    if (!is_forward) {
      list.operands.push_back({"dout", "R", tokens, out});
      if (!a.kv_apart) list.operands.push_back({"dqkv", "W", tokens, a.qkv_cols()});
      if (a.kv_apart) list.operands.push_back({"dq", "W", tokens, hidden});
      if (a.kv_apart) list.operands.push_back({"dkv", "W", keys, kv});
    }
    if (!(a.dropout >= 0 && a.dropout < 1)) return bad("dropout must be a probability below 1");
    if (a.dropout > 0) list.operands.push_back(vector_of("key", "R", kDropoutKeyWords, Type::i32));
    if (a.by_document && !a.causal) return bad("documents are of causal attention");
    if (!(a.document_tokens >= 0)) return bad("document_tokens must not be negative");
    if (a.by_document) list.operands.push_back(documents_of(a.batch, a.seq));
    return list;
  }

  OperandList operator()(const AttentionMerge& m) const {
    if (m.parts < 1 || m.batch < 1 || m.heads < 1 || m.tokens < 1 || m.head_dim < 1)
      return bad("dimensions must be positive");
    if (m.held < 1 || m.tokens % m.held != 0) return bad("held must divide tokens");
    const std::int64_t rows = m.batch * m.tokens, hidden = m.heads * m.head_dim;
    return {{{"outs", "R", m.parts * rows, hidden},
             {"lses", "R", m.parts * m.batch * m.heads, m.tokens},
             {"out", "W", rows, hidden},
             {"lse", "W", m.batch * m.heads, m.tokens}},
            ""};
  }

  OperandList operator()(const PackKv& p) const {
    if (p.rows < 1 || p.heads < 1 || p.kv_heads < 1 || p.head_dim < 1) return bad("dimensions must be positive");
    return {{{"qkv", "R", p.rows, p.q_cols() + p.kv_cols()}, {"kv", "W", p.rows, p.kv_cols()}}, ""};
  }

  OperandList operator()(const JoinQkv& j) const {
    if (j.parts < 1 || j.rows < 1 || j.heads < 1 || j.kv_heads < 1 || j.head_dim < 1)
      return bad("dimensions must be positive");
    if (j.sums != 1 && j.sums != 2) return bad("dkv is one matrix or the sum of two");
    OperandList list{{{"dq", "R", j.parts * j.rows, j.q_cols()}}, ""};
    for (std::int64_t i = 0; i < j.sums; ++i) list.operands.push_back({"dkv", "R", j.rows, j.kv_cols()});
    list.operands.push_back({"dqkv", "W", j.rows, j.q_cols() + j.kv_cols()});
    return list;
  }

  OperandList operator()(const SplitHeads& h) const {
    if (h.groups < 1 || h.rows < 1 || h.heads < 1 || h.kv_heads < 0 || h.head_dim < 1)
      return bad("dimensions must be positive");
    if (h.heads % h.groups != 0 || h.kv_heads % h.groups != 0) return bad("groups must divide heads and kv_heads");
    if (h.pass != Pass::forward && h.pass != Pass::backward) return bad("it has a way there and a way back");
    const OperandSpec x{"x", h.pass == Pass::forward ? "R" : "W", h.rows, h.cols()};
    const OperandSpec y{"y", h.pass == Pass::forward ? "W" : "R", h.groups * h.rows, h.cols() / h.groups};
    if (h.pass == Pass::forward) return {{x, y}, ""};
    return {{y, x}, ""};
  }

  OperandList operator()(const AttentionProduct& a) const {
    if (a.batch < 1 || a.heads < 1 || a.kv_heads < 1 || a.seq < 1 || a.head_dim < 1)
      return bad("dimensions must be positive");
    if (a.heads % a.kv_heads != 0) return bad("kv_heads must divide heads");
    const std::int64_t tokens = a.batch * a.seq, hidden = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
    const auto of_scores = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, a.score_rows(), a.seq};
    };
    const auto of_tokens = [&](const char* name, const char* modes, std::int64_t cols) {
      return OperandSpec{name, modes, tokens, cols};
    };
    const OperandSpec qkv = of_tokens("qkv", "R", hidden + 2 * keys);
    switch (a.product) {
      case AttentionFactor::scores:
        return {{qkv, of_scores("scores", "W")}, ""};
      case AttentionFactor::context:
        return {{of_scores("probabilities", "R"), qkv, of_tokens("out", "W", hidden)}, ""};
      case AttentionFactor::dv:
        return {{of_scores("probabilities", "R"), of_tokens("dout", "R", hidden), of_tokens("dv", "W", keys)}, ""};
      case AttentionFactor::dp:
        return {{of_tokens("dout", "R", hidden), qkv, of_scores("dprobabilities", "W")}, ""};
      case AttentionFactor::dq:
        return {{of_scores("dscores", "R"), qkv, of_tokens("dq", "W", hidden)}, ""};
      case AttentionFactor::dk:
        return {{of_scores("dscores", "R"), qkv, of_tokens("dk", "W", keys)}, ""};
    }
    return bad("unknown product");
  }

  OperandList operator()(const Softmax& s) const {
    if (s.rows < 1 || s.cols < 1) return bad("dimensions must be positive");
    if (s.causal && s.rows % s.cols != 0) return bad("causal rows must be whole squares");
    if (has_wgrad(s.pass)) return bad("softmax has no weights");
    const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, s.rows, s.cols}; };
    if (s.pass != Pass::forward) return {{full("probabilities", "R"), full("gradient", "A")}, ""};
    OperandList list{{full("scores", "R"), full("probabilities", "W")}, ""};
    if (!s.by_document) return list;
    if (!s.causal || s.heads < 1 || s.rows % (s.heads * s.cols) != 0)
      return bad("documents are of causal squares, so many of a sequence");
    list.operands.push_back(documents_of(s.rows / (s.heads * s.cols), s.cols));
    return list;
  }

  OperandList operator()(const LatentHeads& h) const {
    if (h.rows < 1 || h.heads < 1 || h.seq < 1 || h.nope < 1 || h.rope < 1 || h.value < 1)
      return bad("dimensions must be positive");
    if (h.rope % 2 != 0) return bad("rope must be even");
    if (!(h.base > 0 && h.yarn.factor > 0)) return bad("base and factor must be positive");
    if (has_wgrad(h.pass)) return bad("rope has no weights");
    const bool is_forward = h.pass == Pass::forward;
    const auto matrix = [&](const char* name, const char* modes, std::int64_t cols) {
      return OperandSpec{name, modes, h.rows, cols};
    };
    OperandList list;
    if (is_forward)
      list.operands = {matrix("up", "R", h.up_cols()), matrix("key", "R", h.rope), matrix("q", "A", h.q_cols()),
                       matrix("kv", "W", h.kv_cols())};
    else
      list.operands = {matrix("dkv", "R", h.kv_cols()), matrix("dq", "A", h.q_cols()), matrix("dup", "W", h.up_cols()),
                       matrix("dkey", "W", h.rope)};
    if (h.by_document && h.rows % h.seq != 0) return bad("documents are of whole sequences");
    if (h.by_document) list.operands.push_back(documents_of(h.rows / h.seq, h.seq));
    return list;
  }

  OperandList operator()(const Rope& r) const {
    if (r.rows < 1 || r.heads < 1 || r.kv_heads < 1 || r.seq < 1 || r.head_dim < 1)
      return bad("dimensions must be positive");
    if (r.head_dim % 2 != 0) return bad("head_dim must be even");
    if (!(r.base > 0)) return bad("base must be positive");
    const RopeScaling& scaling = r.scaling;
    if (!(scaling.interpolation_factor > 0 && scaling.factor > 0 && scaling.low_freq_factor > 0 &&
          scaling.high_freq_factor > scaling.low_freq_factor && scaling.original_max_position_embeddings > 0))
      return bad("scaling must be by positive factors, the high frequency's above the low one's");
    if (const std::string problem = problem_of(r.parts, r.seq); !problem.empty()) return bad(problem);
    if (has_wgrad(r.pass)) return bad("rope has no weights");
    OperandList list{{{r.pass == Pass::forward ? "qkv" : "dqkv", "A", r.rows, (r.heads + 2 * r.kv_heads) * r.head_dim}},
                     ""};
    if (!r.by_document) return list;
    const std::int64_t held = r.parts.tokens(r.seq);
    if (r.rows % held != 0) return bad("documents are of whole sequences");
    list.operands.push_back(documents_of(r.rows / held, r.seq));
    return list;
  }

  OperandList operator()(const LayerNorm& n) const { return norm_operands(n.pass, n.rows, n.cols, n.heads, true); }
  OperandList operator()(const RmsNorm& n) const { return norm_operands(n.pass, n.rows, n.cols, n.heads, false); }

  OperandList operator()(const Elementwise& e) const {
    if (e.rows < 1 || e.cols < 1) return bad("dimensions must be positive");
    const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, e.rows, e.cols}; };
    switch (e.fn) {
      case ElementwiseFn::gelu:
        return {{full("x", "R"), full("y", "W")}, ""};
      case ElementwiseFn::gelu_backward:
        return {{full("dy", "R"), full("x", "R"), full("dx", "W")}, ""};
      case ElementwiseFn::add:
        return {{full("a", "R"), full("b", "R"), full("c", "W")}, ""};
      case ElementwiseFn::bias_add:
        return {{full("a", "R"), full("b", "R"), vector_of("bias", "R", e.cols), full("c", "W")}, ""};
      case ElementwiseFn::column_sum:
        return {{full("dy", "R"), vector_of("db", "A", e.cols)}, ""};
      case ElementwiseFn::accumulate:
        return {{full("a", "R"), full("c", "A")}, ""};
      case ElementwiseFn::swiglu:
        return {{full("gate", "R"), full("up", "R"), full("y", "W")}, ""};
      case ElementwiseFn::swiglu_backward:
        return {{full("dy", "R"), full("gate", "R"), full("up", "R"), {"dx", "W", e.rows, 2 * e.cols}}, ""};
    }
    return bad("unknown function");
  }

  OperandList operator()(const Dropout& d) const {
    if (d.rows < 1 || d.cols < 1 || d.seq < 1) return bad("dimensions must be positive");
    if (!(d.probability > 0 && d.probability < 1)) return bad("the probability must be above 0 and below 1");
    if (has_wgrad(d.pass)) return bad("dropout has no weights");
    if (const std::string problem = problem_of(d.parts, d.seq); !problem.empty()) return bad(problem);
    const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, d.rows, d.cols}; };
    const OperandSpec key = vector_of("key", "R", kDropoutKeyWords, Type::i32);
    const auto mask = [&](const char* modes) {
      return OperandSpec{"mask", modes, d.rows, d.mask_cols(), Shape::matrix, Type::i32};
    };
    if (d.pass == Pass::dgrad) return {{full("dc", "R"), d.keeps_mask ? mask("R") : key, full("db", "W")}, ""};
    OperandList list;
    if (d.residual) list.operands.push_back(full("a", "R"));
    list.operands.push_back(full("b", "R"));
    if (d.bias) list.operands.push_back(vector_of("bias", "R", d.cols));
    list.operands.insert(list.operands.end(), {key, full("c", "W")});
    if (d.keeps_mask) list.operands.push_back(mask("W"));
    return list;
  }

  OperandList operator()(const Route& r) const {
    if (r.rows < 1 || r.experts < 1 || r.topk < 1) return bad("dimensions must be positive");
    if (r.topk > r.experts) return bad("topk must be at most experts");
    if (r.groups != 0 && (r.groups < 0 || r.experts % r.groups != 0 || r.group_topk < 1 || r.group_topk > r.groups ||
                          r.topk % r.group_topk != 0 || r.topk / r.group_topk > r.experts / r.groups))
      return bad("groups must divide experts, and group_topk topk");
    if (has_wgrad(r.pass)) return bad("a router's weights are a product's");
    const OperandSpec logits{"logits", "R", r.rows, r.experts};
    const auto chosen = [&](const char* name, const char* modes, Type type) {
      return OperandSpec{name, modes, r.rows, r.topk, Shape::matrix, type};
    };
    if (r.pass == Pass::forward) {
      OperandList list{{logits}, ""};
      if (r.biased) list.operands.push_back(vector_of("bias", "R", r.experts));
      list.operands.push_back(chosen("indices", "W", Type::i32));
      list.operands.push_back(chosen("probabilities", "W", Type::floating));
      return list;
    }
    return {{logits,
             chosen("indices", "R", Type::i32),
             chosen("dprobabilities", "R", Type::floating),
             {"dlogits", "W", r.rows, r.experts}},
            ""};
  }

  OperandList operator()(const BalanceLoss& b) const {
    if (b.rows < 1 || b.experts < 1 || b.topk < 1 || b.sequences < 1 || b.seq < 1)
      return bad("dimensions must be positive");
    if (b.topk > b.experts) return bad("topk must be at most experts");
    if (has_wgrad(b.pass)) return bad("a loss has no weights");
    if (const std::string problem = problem_of(b.parts, b.seq); !problem.empty()) return bad(problem);
    const bool is_forward = b.pass == Pass::forward;
    OperandList list{{{"logits", "R", b.rows, b.experts}, {"counts", is_forward ? "W" : "R", b.sequences, b.experts}},
                     ""};
    if (!is_forward) list.operands.push_back({"dlogits", "A", b.rows, b.experts});
    return list;
  }

  OperandList operator()(const MeanCounts& m) const {
    if (m.experts < 1) return bad("dimensions must be positive");
    return {{vector_of("counts", "A", m.experts), vector_of("tally", "A", m.experts)}, ""};
  }

  OperandList operator()(const CountLoads& c) const {
    if (c.rows < 1 || c.topk < 1 || c.experts < 1) return bad("dimensions must be positive");
    return {{{"indices", "R", c.rows, c.topk, Shape::matrix, Type::i32}, vector_of("loads", "A", c.experts)}, ""};
  }

  OperandList operator()(const MoveBias& m) const {
    if (m.rows < 1 || m.experts < 1) return bad("dimensions must be positive");
    return {{{"loads", "R", m.rows, m.experts}, {"bias", "A", m.rows, m.experts}}, ""};
  }

  OperandList operator()(const SortTokens& s) const {
    if (s.rows < 1 || s.topk < 1 || s.experts < 1) return bad("dimensions must be positive");
    if (s.local > 0 && s.each == 0 && s.capacity < 1) return bad("rows of some experts need a capacity");
    OperandList list{{{"indices", "R", s.rows, s.topk, Shape::matrix, Type::i32}}, ""};
    if (s.each == 0) list.operands.push_back(vector_of("offsets", "W", s.experts_here() + 1, Type::i32));
    list.operands.push_back({"positions", "W", s.rows, s.topk, Shape::matrix, Type::i32});
    return list;
  }

  OperandList operator()(const Permute& p) const {
    if (p.tokens < 1 || p.copies < 1 || p.cols < 1) return bad("dimensions must be positive");
    if (p.pass != Pass::forward && p.pass != Pass::backward) return bad("it has a way there and a way back");
    if (p.capacity != 0 && p.capacity < p.rows) return bad("capacity must be at least rows");
    const bool is_forward = p.pass == Pass::forward;
    const Type type = is_forward ? Type::floating_or_codes : Type::floating;
    const OperandSpec positions{"positions", "R", p.tokens, p.copies, Shape::matrix, Type::i32},
        x{"x", is_forward ? "R" : "WA", p.tokens, p.x_cols(), Shape::matrix, type},
        rows{"rows", is_forward ? "W" : "R", p.matrix_rows(), p.cols, Shape::matrix, type};
    if (is_forward) return {{positions, x, rows}, ""};
    return {{positions, rows, x}, ""};
  }

  OperandList operator()(const CountRows& c) const {
    if (c.ranks < 1 || c.local < 1 || c.capacity < 1) return bad("dimensions must be positive");
    if (c.experts != c.ranks * c.local) return bad("every rank must have equally many experts");
    return {{vector_of("all", "R", c.ranks * (c.experts + 1), Type::i32),
             vector_of("offsets", "W", c.local + 1, Type::i32)},
            ""};
  }

  OperandList operator()(const SortByExpert& s) const {
    if (s.ranks < 1 || s.local < 1 || s.rows < 1 || s.cols < 1) return bad("dimensions must be positive");
    if (s.experts != s.ranks * s.local) return bad("every rank must have equally many experts");
    if (s.capacity < s.rows) return bad("capacity must be at least rows");
    if (s.pass != Pass::forward && s.pass != Pass::backward) return bad("it has a way there and a way back");
    const bool is_forward = s.pass == Pass::forward;
    if (s.each > 0 && s.rows != s.experts * s.each) return bad("rows must be those of all experts");
    const Type type = is_forward ? Type::floating_or_codes : Type::floating;
    OperandList list{{{is_forward ? "received" : "sorted", "R", s.capacity, s.cols, Shape::matrix, type},
                      {is_forward ? "sorted" : "received", "W", s.capacity, s.cols, Shape::matrix, type}},
                     ""};
    if (s.each == 0)
      list.operands.insert(list.operands.begin(), vector_of("all", "R", s.ranks * (s.experts + 1), Type::i32));
    return list;
  }

  OperandList operator()(const GroupedGemm& g) const {
    if (g.groups < 1 || g.rows < 1 || g.n < 1 || g.k < 1) return bad("dimensions must be positive");
    if (g.pass == Pass::backward) return bad("its gradients are two products");
    if (g.capacity != 0 && g.capacity < g.rows) return bad("capacity must be at least rows");
    if (const std::string problem = problem_of(g.grouped()); !problem.empty()) return bad(problem);
    if (g.has_codes()) return operands_of_codes(g);
    if (g.scaling_b != Scaling::none) return bad("A and B are scaled in different ways");
    const OperandSpec offsets = vector_of("offsets", "R", g.groups + 1, Type::i32);
    const auto rows = [&](const char* name, const char* modes, std::int64_t cols) {
      return OperandSpec{name, modes, g.matrix_rows(), cols};
    };
    const auto weights = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, g.groups * g.n, g.k};
    };
    OperandList list;
    if (g.pass == Pass::forward)
      list.operands = {rows("x", "R", g.k), weights("weights", "R"), offsets, rows("y", "W", g.n)};
    else if (g.pass == Pass::dgrad)
      list.operands = {rows("dy", "R", g.n), weights("weights", "R"), offsets, rows("dx", "W", g.k)};
    else
      list.operands = {rows("dy", "R", g.n), rows("x", "R", g.k), offsets, weights("dweights", "A")};
    if (g.equal) list.operands.erase(list.operands.begin() + 2);
    return list;
  }

  OperandList operator()(const WeightedActivation& w) const {
    if (w.rows < 1 || w.cols < 1) return bad("dimensions must be positive");
    if (has_wgrad(w.pass)) return bad("an activation has no weights");
    if (w.capacity != 0 && (w.capacity < w.rows || w.groups < 1)) return bad("capacity must be at least rows");
    const bool is_forward = w.pass == Pass::forward;
    const std::int64_t rows = w.matrix_rows();
    OperandList list{{{"x", "R", rows, w.in_cols()},
                      {"p", "R", rows, 1},
                      {is_forward ? "y" : "dx", "W", rows, is_forward ? w.cols : w.in_cols()}},
                     ""};
    if (!is_forward) {
      list.operands.insert(list.operands.begin(), {"dy", "R", rows, w.cols});
      list.operands.push_back({"dp", "W", rows, 1});
    }
    if (w.capacity > 0) list.operands.insert(list.operands.begin(), vector_of("offsets", "R", w.groups + 1, Type::i32));
    return list;
  }

  OperandList operator()(const GateRows& g) const {
    if (g.rows < 1 || g.cols < 1) return bad("dimensions must be positive");
    if (has_wgrad(g.pass)) return bad("a gate has no weights");
    const bool is_forward = g.pass == Pass::forward;
    OperandList list{
        {{"x", "R", g.rows, g.cols}, {"logit", "R", g.rows, 1}, {is_forward ? "y" : "dx", "W", g.rows, g.cols}}, ""};
    if (is_forward) return list;
    list.operands.insert(list.operands.begin(), {"dy", "R", g.rows, g.cols});
    list.operands.push_back({"dlogit", "W", g.rows, 1});
    return list;
  }

  OperandList operator()(const ShortConv& c) const {
    if (c.rows < 1 || c.channels < 1 || c.seq < 1 || c.width < 1) return bad("dimensions must be positive");
    if (c.rows % c.seq != 0) return bad("rows must be whole sequences");
    if (c.pass == Pass::backward) return bad("its gradients are two operations");
    const bool is_forward = c.pass == Pass::forward;
    const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, c.rows, c.channels}; };
    const auto weights = [&](const char* name, const char* bias, const char* modes) {
      std::vector<OperandSpec> specs = {{name, modes, c.channels, c.width}};
      if (c.bias) specs.push_back(vector_of(bias, modes, c.channels));
      return specs;
    };
    OperandList list;
    const auto append = [&](const std::vector<OperandSpec>& specs) {
      list.operands.insert(list.operands.end(), specs.begin(), specs.end());
    };
    if (!is_forward) append({full("dy", "R")});
    append({full("x", "R")});
    append(weights("weight", "bias", "R"));
    if (c.pass == Pass::wgrad)
      append(weights("dweight", "dbias", "A"));
    else
      append({full(is_forward ? "y" : "dx", "W")});
    return list;
  }

  OperandList operator()(const LinearGates& g) const {
    if (g.rows < 1 || g.heads < 1) return bad("dimensions must be positive");
    if (g.pass == Pass::backward) return bad("its gradients are two operations");
    const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, g.rows, g.heads}; };
    const bool is_forward = g.pass == Pass::forward, has_rate = g.own_rate && g.pass != Pass::wgrad;
    OperandList list;
    std::vector<OperandSpec>& all = list.operands;
    if (!is_forward) all.insert(all.end(), {full("drate", "R"), full("ddecay", "R")});
    if (has_rate) all.push_back(full("raw_rate", "R"));
    all.insert(all.end(),
               {full("raw_decay", "R"), vector_of("a_log", "R", g.heads), vector_of("dt_bias", "R", g.heads)});
    if (is_forward) {
      all.insert(all.end(), {full("rate", "W"), full("decay", "W")});
    } else if (g.pass == Pass::wgrad) {
      all.insert(all.end(), {vector_of("da_log", "A", g.heads), vector_of("ddt_bias", "A", g.heads)});
    } else {
      if (has_rate) all.push_back(full("draw_rate", "W"));
      all.push_back(full("draw_decay", "W"));
    }
    return list;
  }

  OperandList operator()(const LinearAttention& a) const {
    if (a.batch < 1 || a.heads < 1 || a.key_heads < 1 || a.seq < 1 || a.key_dim < 1 || a.value_dim < 1)
      return bad("dimensions must be positive");
    if (a.heads % a.key_heads != 0) return bad("key_heads must divide heads");
    if (a.pass == Pass::backward) return bad("its gradients are two operations");
    if (a.pass == Pass::wgrad && !a.skip) return bad("without skip it has no weights");
    const auto keys = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, a.rows(), a.key_cols()};
    };
    const auto values = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, a.rows(), a.value_cols()};
    };
    const auto numbers = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, a.rows(), a.heads};
    };
    if (a.pass == Pass::wgrad) return {{values("v", "R"), values("do", "R"), vector_of("dskip", "A", a.heads)}, ""};
    OperandList list{{keys("q", "R"), keys("k", "R"), values("v", "R"), numbers("rate", "R"), numbers("decay", "R")},
                     ""};
    if (a.skip) list.operands.push_back(vector_of("skip", "R", a.heads));
    if (a.pass == Pass::forward)
      list.operands.push_back(values("o", "W"));
    else
      list.operands.insert(list.operands.end(), {values("do", "R"), keys("dq", "W"), keys("dk", "W"), values("dv", "W"),
                                                 numbers("drate", "W"), numbers("ddecay", "W")});
    return list;
  }

  OperandList operator()(const GatedNorm& n) const {
    if (n.rows < 1 || n.groups < 1 || n.cols < 1) return bad("dimensions must be positive");
    if (n.pass == Pass::backward) return bad("its gradients are two operations");
    const auto full = [&](const char* name, const char* modes) {
      return OperandSpec{name, modes, n.rows, n.groups * n.cols};
    };
    if (n.pass == Pass::wgrad)
      return {{full("dy", "R"), full("x", "R"), full("z", "R"), vector_of("dweight", "A", n.weights())}, ""};
    OperandList list{{full("x", "R"), full("z", "R"), vector_of("weight", "R", n.weights())}, ""};
    if (n.pass == Pass::forward) {
      list.operands.push_back(full("y", "W"));
      return list;
    }
    list.operands.insert(list.operands.begin(), full("dy", "R"));
    list.operands.insert(list.operands.end(), {full("dx", "W"), full("dz", "W")});
    return list;
  }

  OperandList operator()(const Embedding& e) const {
    if (e.rows < 1 || e.cols < 1 || e.vocab < 1 || e.seq < 1 || e.shards < 1) return bad("dimensions must be positive");
    if (e.vocab % e.shards != 0 || e.cols % e.shards != 0) return bad("shards must divide vocab and cols");
    const bool is_forward = e.pass == Pass::forward;
    if (has_dgrad(e.pass)) return bad("tokens have no gradient");
    if (const std::string problem = problem_of(e.parts, e.seq); !problem.empty()) return bad(problem);
    OperandList list;
    list.operands.push_back(vector_of("tokens", "R", e.rows, Type::i32));
    if (!is_forward) list.operands.push_back({"dx", "R", e.rows, e.cols});
    list.operands.push_back(table_of(is_forward ? "wte" : "dwte", is_forward ? "R" : "A", e.vocab / e.shards, e.cols));
    if (e.positions)
      list.operands.push_back(table_of(is_forward ? "wpe" : "dwpe", is_forward ? "R" : "A", e.seq, e.cols / e.shards));
    if (is_forward) list.operands.push_back({"x", "W", e.rows, e.cols});
    if (!e.by_document) return list;
    const std::int64_t held = e.parts.tokens(e.seq);
    if (e.rows % held != 0) return bad("documents are of whole sequences");
    list.operands.push_back(documents_of(e.rows / held, e.seq));
    return list;
  }

  OperandList operator()(const CrossEntropy& c) const {
    if (c.rows < 1 || c.cols < 1 || c.shards < 1) return bad("dimensions must be positive");
    if (c.classes < 1 || c.classes > c.cols * c.shards) return bad("classes must be among the columns");
    OperandList list;
    list.operands.push_back({"logits", "A", c.rows, c.cols});
    list.operands.push_back(vector_of("targets", "R", c.rows, Type::i32));
    if (c.shards > 1) list.operands.push_back(vector_of("stats", "R", 3 * c.shards * c.rows));
    if (c.masked) list.operands.push_back(scalar_of("weight", "R"));
    list.operands.push_back(scalar_of("loss", "A"));
    return list;
  }

  OperandList operator()(const VocabStats& v) const {
    if (v.rows < 1 || v.cols < 1 || v.classes < 1) return bad("dimensions must be positive");
    return {{{"logits", "R", v.rows, v.cols},
             vector_of("targets", "R", v.rows, Type::i32),
             vector_of("stats", "W", 3 * v.rows)},
            ""};
  }

  OperandList operator()(const Fill& f) const {
    if (f.elements < 1) return bad("elements must be positive");
    return {{{"dst", "W", 1, f.elements, Shape::elements}}, ""};
  }

  OperandList operator()(const Cast& c) const {
    if (c.elements < 1) return bad("elements must be positive");
    return {{{"src", "R", 1, c.elements, Shape::elements, Type::floating_or_codes},
             {"dst", "W", 1, c.elements, Shape::elements, Type::floating_or_codes}},
            ""};
  }

  OperandList operator()(const OfLowPrecision auto& w) const { return operands_of_codes(w); }

  OperandList operator()(const ScaledCast& c) const {
    if (c.elements < 1 || c.shards < 1) return bad("elements and shards must be positive");
    if (c.elements % kScaleBlock != 0) return bad("a shard must be whole blocks of a scale");
    if (c.pass != Pass::forward && c.pass != Pass::backward) return bad("it has a way there and a way back");
    const bool is_forward = c.pass == Pass::forward;
    const OperandSpec x = vector_of("x", is_forward ? "R" : "W", c.shards * c.elements),
                      packed = vector_of("packed", is_forward ? "W" : "R", c.shards * c.packed(), Type::e4m3);
    if (is_forward) return {{x, packed}, ""};
    return {{packed, x}, ""};
  }

  OperandList operator()(const LocalReduce& r) const {
    if (r.parts < 1 || r.elements < 1) return bad("dimensions must be positive");
    return {{vector_of("parts", "R", r.parts * r.elements), {"sum", "W", 1, r.elements, Shape::elements}}, ""};
  }

  OperandList operator()(const SumSquares& s) const {
    if (s.elements < 1) return bad("elements must be positive");
    return {{vector_of("x", "R", s.elements), scalar_of("sum", "A")}, ""};
  }

  OperandList operator()(const AdamW& a) const {
    if (a.elements < 1 || a.shards < 1) return bad("elements and shards must be positive");
    for (const AdamW::Range& range : a.decayed)
      if (range.begin < 0 || range.end < range.begin || range.end > a.elements * a.shards)
        return bad("decayed range [" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
                   ") leaves the bucket of " + std::to_string(a.elements * a.shards));
    OperandList list;
    list.operands = {vector_of("grad", "R", a.elements),
                     scalar_of("norm_squared", "R"),
                     vector_of("hyper", "R", 8, Type::f64),
                     vector_of("param", a.master && !a.remainders ? "W" : "A", a.elements),
                     vector_of("m", "A", a.elements, Type::floating_or_codes),
                     vector_of("v", "A", a.elements, Type::floating_or_codes)};
    if (a.remainders && !a.master) return bad("remainders are those of masters");
    if (a.master)
      list.operands.push_back(vector_of("master", "A", a.elements, a.remainders ? Type::i16 : Type::floating));
    return list;
  }

  OperandList operator()(const Collective& c) const {
    if (c.elements < 1) return bad("elements must be positive");
    const CollectiveRule rule = rule_of(c.kind);
    if (c.reduction != Reduction::sum && !rule.reduces())
      return bad(std::string("the reduction is ") + name_of(c.reduction) + ", and nothing is reduced");
    if (rule.one_buffer) return {{vector_of("buffer", "A", c.elements)}, ""};
    if (c.by_rows()) {
      if (c.cols < 1 || c.capacity < 1) return bad("dimensions must be positive");
      if (c.experts % group_size != 0) return bad("every member must have equally many experts");
      if (c.elements % c.cols != 0 || c.capacity % c.cols != 0) return bad("buffers must be whole rows");
      const bool is_dispatch = c.kind == CollectiveKind::dispatch;
      return {{vector_of(is_dispatch ? "rows" : "received", "R", is_dispatch ? c.elements : c.capacity, Type::any),
               vector_of("offsets", "R", group_size * (c.experts + 1), Type::i32),
               vector_of(is_dispatch ? "received" : "rows", "W", is_dispatch ? c.capacity : c.elements, Type::any)},
              ""};
    }
    if (c.elements % group_size != 0)
      return bad(std::to_string(c.elements) + " elements do not divide by the group's " + std::to_string(group_size) +
                 " members");
    const auto operand = [&](const char* modes, bool is_shard) {
      return vector_of(is_shard ? "shard" : "whole", modes, is_shard ? c.elements / group_size : c.elements,
                       rule.reduces() ? Type::floating : Type::any);
    };
    return {{operand("R", rule.gives_shard), operand("W", rule.gets_shard)}, ""};
  }

  OperandList operator()(const PointToPoint& p) const {
    if (p.elements < 1) return bad("elements must be positive");
    if (p.offset.is_constant() && p.offset.eval({}) % group_size == 0) return bad("a message to the rank itself");
    return {{vector_of("buffer", p.is_send ? "R" : "W", p.elements, Type::floating_or_codes)}, ""};
  }
};

}  // namespace
}  // namespace operand_specs

OperandList operands_of(const Work& work, std::int64_t group_size) {
  return std::visit(operand_specs::ListOperands{group_size}, work);
}

bool may_be_in_place(const Work& work) {
  return std::holds_alternative<Elementwise>(work) || std::holds_alternative<Dropout>(work) ||
         std::holds_alternative<LayerNorm>(work) || std::holds_alternative<RmsNorm>(work) ||
         std::holds_alternative<Softmax>(work) || std::holds_alternative<Collective>(work);
}

}  // namespace stretto
