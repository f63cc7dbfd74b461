#include "model/ops/experts.hpp"

#include "model/ops/sizes_text.hpp"

namespace stretto {

namespace {

OperandList operands_of_codes(const GroupedGemm& g) {
  using namespace operand_specs;
  const ScalingRule a = rule_of(g.scaling_a), b = rule_of(g.scaling_b);
  if (a.block != b.block || a.has_factor != b.has_factor) return bad("A and B are scaled in different ways");
  const bool is_forward = g.pass == Pass::forward, is_wgrad = g.pass == Pass::wgrad;
  const Dtype format = a.block == 16 ? Dtype::e2m1x2 : Dtype::e4m3;  // e5m2 has its shapes
  const ScaledAlong along = is_wgrad ? ScaledAlong::columns : ScaledAlong::rows;
  const auto codes = [](const char* name, const CodeShape& shape) {
    return OperandSpec{name, "R", shape.rows, shape.cols, Shape::matrix, Type::codes};
  };
  const auto rows = [&](const char* name, std::int64_t cols, Scaling scaling) {
    return codes(name, is_wgrad && g.transposes ? grouped_transposed_shape(format, scaling, g.grouped(), cols)
                                                : grouped_code_shape(format, scaling, along, g.grouped(), cols));
  };
  const GroupedRows w = g.grouped_weights();
  if (w.code_rows(group_rows_of(g.scaling_b)) != w.rows) return bad("weights of a group are no whole blocks");
  OperandList list{{rows(is_forward ? "x" : "dy", is_forward ? g.k : g.n, g.scaling_a)}, ""};
  if (is_wgrad)
    list.operands.push_back(rows("x", g.k, g.scaling_b));
  else if (!is_forward && g.transposes)
    list.operands.push_back(codes("weights", grouped_transposed_shape(format, g.scaling_b, w, g.k)));
  else
    list.operands.push_back(
        codes("weights",
              grouped_code_shape(format, g.scaling_b, is_forward ? ScaledAlong::rows : ScaledAlong::columns, w, g.k)));
  if (!g.equal) list.operands.push_back(vector_of("offsets", "R", g.groups + 1, Type::i32));
  if (g.has_factors())
    list.operands.insert(list.operands.end(), {vector_of("inverse_a", "R", g.groups, Type::f32),
                                               vector_of("inverse_b", "R", g.groups, Type::f32)});
  if (is_wgrad)
    list.operands.push_back({"dweights", "A", g.groups * g.n, g.k});
  else
    list.operands.push_back({is_forward ? "y" : "dx", "W", g.matrix_rows(), is_forward ? g.n : g.k});
  return list;
}

}  // namespace

OperandList operands(const Route& r) {
  using namespace operand_specs;
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

OperandList operands(const BalanceLoss& b) {
  using namespace operand_specs;
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

OperandList operands(const MeanCounts& m) {
  using namespace operand_specs;
  if (m.experts < 1) return bad("dimensions must be positive");
  return {{vector_of("counts", "A", m.experts), vector_of("tally", "A", m.experts)}, ""};
}

OperandList operands(const CountLoads& c) {
  using namespace operand_specs;
  if (c.rows < 1 || c.topk < 1 || c.experts < 1) return bad("dimensions must be positive");
  return {{{"indices", "R", c.rows, c.topk, Shape::matrix, Type::i32}, vector_of("loads", "A", c.experts)}, ""};
}

OperandList operands(const MoveBias& m) {
  using namespace operand_specs;
  if (m.rows < 1 || m.experts < 1) return bad("dimensions must be positive");
  return {{{"loads", "R", m.rows, m.experts}, {"bias", "A", m.rows, m.experts}}, ""};
}

OperandList operands(const SortTokens& s) {
  using namespace operand_specs;
  if (s.rows < 1 || s.topk < 1 || s.experts < 1) return bad("dimensions must be positive");
  if (s.local > 0 && s.each == 0 && s.capacity < 1) return bad("rows of some experts need a capacity");
  OperandList list{{{"indices", "R", s.rows, s.topk, Shape::matrix, Type::i32}}, ""};
  if (s.each == 0) list.operands.push_back(vector_of("offsets", "W", s.experts_here() + 1, Type::i32));
  list.operands.push_back({"positions", "W", s.rows, s.topk, Shape::matrix, Type::i32});
  return list;
}

OperandList operands(const Permute& p) {
  using namespace operand_specs;
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

OperandList operands(const CountRows& c) {
  using namespace operand_specs;
  if (c.ranks < 1 || c.local < 1 || c.capacity < 1) return bad("dimensions must be positive");
  if (c.experts != c.ranks * c.local) return bad("every rank must have equally many experts");
  return {
      {vector_of("all", "R", c.ranks * (c.experts + 1), Type::i32), vector_of("offsets", "W", c.local + 1, Type::i32)},
      ""};
}

OperandList operands(const SortByExpert& s) {
  using namespace operand_specs;
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

OperandList operands(const GroupedGemm& g) {
  using namespace operand_specs;
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

OperandList operands(const WeightedActivation& w) {
  using namespace operand_specs;
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

OperandList operands(const GateRows& g) {
  using namespace operand_specs;
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

std::string sizes_text(const Route& r) {
  return std::string(name_of(r.pass)) + " rows " + std::to_string(r.rows) + " " + std::to_string(r.topk) + " of " +
         std::to_string(r.experts) + " experts " + name_of(r.score) + (r.biased ? " +bias" : "");
}

std::string sizes_text(const BalanceLoss& b) {
  return std::string(name_of(b.pass)) + " rows " + std::to_string(b.rows) + " " + std::to_string(b.topk) + " of " +
         std::to_string(b.experts) + " experts in " + std::to_string(b.sequences) + " sequences";
}

std::string sizes_text(const MeanCounts& m) { return std::to_string(m.experts) + " experts"; }

std::string sizes_text(const CountLoads& c) {
  return dims(c.rows, c.topk) + " of " + std::to_string(c.experts) + " experts";
}

std::string sizes_text(const MoveBias& m) { return dims(m.rows, m.experts); }

std::string sizes_text(const SortTokens& s) {
  return dims(s.rows, s.topk) + " to " + (s.local > 0 ? std::to_string(s.local) + " of " : std::string()) +
         std::to_string(s.experts) + " experts" + (s.each > 0 ? ", each " + std::to_string(s.each) : "");
}

std::string sizes_text(const Permute& p) {
  return std::string(name_of(p.pass)) + " " + dims(p.tokens, p.cols) + " by " + std::to_string(p.copies) +
         (p.apart ? " apart" : "") + (p.rows > 0 ? " in " + std::to_string(p.rows) + " rows" : "");
}

std::string sizes_text(const CountRows& c) {
  return std::to_string(c.local) + " of " + std::to_string(c.experts) + " experts from " + std::to_string(c.ranks) +
         " ranks";
}

std::string sizes_text(const SortByExpert& s) {
  return std::string(name_of(s.pass)) + " " + dims(s.rows, s.cols) + " of " + std::to_string(s.local) +
         " experts from " + std::to_string(s.ranks) + " ranks";
}

std::string sizes_text(const GroupedGemm& g) {
  return std::string(name_of(g.pass)) + " " + dims(g.rows, g.n) + "x" + std::to_string(g.k) + " in " +
         std::to_string(g.groups) + " groups" + (g.has_codes() ? std::string(" ") + name_of(g.scaling_a) : "") +
         (g.scaling_b != g.scaling_a ? std::string(" ") + name_of(g.scaling_b) : "") +
         (g.split_accumulation ? " split" : "");
}

std::string sizes_text(const WeightedActivation& w) {
  return std::string(name_of(w.pass)) + " " + dims(w.rows, w.cols) + (w.gated ? " gated" : "");
}

std::string sizes_text(const GateRows& g) { return std::string(name_of(g.pass)) + " " + dims(g.rows, g.cols); }

double counted_flops(const GroupedGemm& g) { return 2.0 * double(g.rows) * double(g.n) * double(g.k); }

}  // namespace stretto
