#include "model/ops/gemm.hpp"

#include "base/values_of.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

const char* name_of(GemmEpilogue epilogue) {
  return name_in({"none", "gelu", "gelu_backward", "bias_gradient", "residual", "gelu_backward_bias_gradient"},
                 epilogue);
}

OperandList operands(const Gemm& g) {
  using namespace operand_specs;
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

std::string sizes_text(const Gemm& g) {
  return dims(g.m, g.n) + "x" + std::to_string(g.k) + " " + (g.trans_a ? "t" : "n") + (g.trans_b ? "t" : "n") +
         (g.bias ? " +bias" : "") + (g.epilogue == GemmEpilogue::none ? "" : std::string(" +") + name_of(g.epilogue)) +
         (g.has_codes() ? std::string(" ") + name_of(g.scaling_a) : "") +
         (g.scaling_b != g.scaling_a ? std::string(" ") + name_of(g.scaling_b) : "") +
         (g.split_accumulation ? " split" : "");
}

double counted_flops(const Gemm& g) { return 2.0 * double(g.m) * double(g.n) * double(g.k); }

}  // namespace stretto
