#include "model/ops/codes.hpp"

#include <algorithm>

#include "base/values_of.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

std::string problem_of(Dtype format, Scaling scaling, ScaledAlong along, std::int64_t rows, std::int64_t cols) {
  const ScalingRule rule = rule_of(scaling);
  const std::string shape = "a matrix of " + std::to_string(rows) + " x " + std::to_string(cols);
  if (format == Dtype::e2m1x2 && cols % 2 != 0) return shape + " has half a byte of codes";
  if (rule.block == 0) return "";
  const std::int64_t side = side_of(scaling);
  const bool is_whole =
      rule.is_square ? rows % side == 0 && cols % side == 0 : (along == ScaledAlong::rows ? cols : rows) % side == 0;
  return is_whole ? "" : shape + " is not cut into whole blocks of " + std::to_string(side);
}

const char* name_of(ColumnCopy copy) { return name_in({"none", "plain", "transposed"}, copy); }

const char* name_of(QuantisedLayer layer) {
  return name_in({"qkv", "proj", "fc1", "fc2", "q", "q_down", "q_up", "kv_down", "kv_up", "shared.fc1", "shared.fc2",
                  "experts.fc1", "experts.fc2", "in_proj", "out_proj"},
                 layer);
}

OperandList operands(const Amax& a) {
  using namespace operand_specs;
  if (a.rows < 1 || a.cols < 1) return bad("dimensions must be positive");
  if (a.hadamard && a.groups == 0 && a.rows % 16 != 0) return bad("Hadamard transforms are of 16 rows");
  if (const std::string problem = problem_of({a.groups, a.rows, a.capacity, a.equal}); !problem.empty())
    return bad(problem);
  OperandList list{{{"x", "R", a.matrix_rows(), a.cols}}, ""};
  if (a.has_offsets()) list.operands.push_back(vector_of("offsets", "R", a.groups + 1, Type::i32));
  const std::int64_t elements = (a.hadamard ? 2 : 1) * std::max<std::int64_t>(a.groups, 1);
  list.operands.push_back(vector_of("amax", "W", elements, Type::f32));
  return list;
}

OperandList operands(const UpdateScale& u) {
  using namespace operand_specs;
  if (u.elements < 1 || u.history < 0) return bad("elements must be positive");
  if (u.format != Dtype::e4m3 && u.format != Dtype::e5m2) return bad("the format must be e4m3 or e5m2");
  const bool keeps = u.history > 0;
  OperandList list{{vector_of("amax", keeps ? "A" : "R", u.elements, Type::f32)}, ""};
  if (keeps) list.operands.push_back(vector_of("history", "A", u.history * u.elements, Type::f32));
  list.operands.push_back(vector_of("scale", keeps ? "A" : "W", u.elements, Type::f32));
  return list;
}

OperandList operands(const Quantise& q) {
  using namespace operand_specs;
  if (q.rows < 1 || q.cols < 1) return bad("dimensions must be positive");
  if (q.scaling == Scaling::none || !is_code(q.format)) return bad("it makes codes");
  if (!q.rowwise && q.columnwise == ColumnCopy::none) return bad("it has no copy to make");
  const ScalingRule rule = rule_of(q.scaling);
  const bool is_tensor = q.scaling == Scaling::tensor, is_nv = rule.block == 16;
  if ((q.format == Dtype::e2m1x2) != is_nv) return bad("e2m1 and scales of 16 codes go together");
  if (is_tensor && (!q.rowwise || q.columnwise == ColumnCopy::plain))
    return bad("with one scale, one copy serves both");
  if (q.hadamard && (!is_nv || q.columnwise == ColumnCopy::none)) return bad("a second copy of e2m1 is transformed");
  if (q.stochastic && (!is_nv || (q.groups == 0 && q.seq < 1)))
    return bad("e2m1 is rounded stochastically, by places in a sequence or by numbers");
  if (q.records && !is_tensor) return bad("delayed scaling records amaxes");
  if (const std::string wrong = problem_of(q.grouped()); !wrong.empty()) return bad(wrong);
  if (const std::string problem = problem_of(q.parts, q.seq); q.seq > 0 && !problem.empty()) return bad(problem);
  const bool transposes = q.columnwise == ColumnCopy::transposed;
  const ScaledAlong second = transposes ? ScaledAlong::rows : ScaledAlong::columns;
  const std::int64_t code_rows = q.groups > 0 ? q.grouped().code_rows(group_rows_of(q.scaling)) : q.rows;
  const std::int64_t second_rows = transposes ? q.cols : code_rows, second_cols = transposes ? code_rows : q.cols;
  std::string problem;
  if (q.rowwise) problem = problem_of(q.format, q.scaling, ScaledAlong::rows, code_rows, q.cols);
  if (problem.empty() && q.columnwise != ColumnCopy::none)
    problem = problem_of(q.format, q.scaling, second, second_rows, second_cols);
  if (!problem.empty()) return bad(problem);
  const std::int64_t groups = std::max<std::int64_t>(q.groups, 1), factors = (q.hadamard ? 2 : 1) * groups;
  const auto codes = [](const char* name, const CodeShape& shape) {
    return OperandSpec{name, "W", shape.rows, shape.cols, Shape::matrix, Type::codes};
  };
  if (q.of_codes && (q.groups == 0 || q.scaling != Scaling::mx || !q.rowwise))
    return bad("codes are made of codes for groups of rows, with scales of 32");
  OperandList list{{{"x", "R", q.matrix_rows(), q.x_cols(), Shape::matrix, q.of_codes ? Type::e4m3 : Type::floating}},
                   ""};
  if (is_tensor) list.operands.push_back(vector_of("scale", "R", factors, Type::f32));
  if (is_nv) list.operands.push_back(vector_of("amax", "R", factors, Type::f32));
  if (q.has_offsets()) list.operands.push_back(vector_of("offsets", "R", q.groups + 1, Type::i32));
  if (q.stochastic) list.operands.push_back(vector_of("key", "R", kDropoutKeyWords, Type::i32));
  if (q.rowwise) list.operands.push_back(codes("codes", q.codes()));
  if (q.columnwise != ColumnCopy::none) list.operands.push_back(codes("column_codes", q.column_codes()));
  if (rule.has_factor) list.operands.push_back(vector_of("inverse", "W", factors, Type::f32));
  if (q.records) list.operands.push_back(vector_of("recorded", "A", groups, Type::f32));
  return list;
}

OperandList operands(const TransposeCodes& t) {
  using namespace operand_specs;
  if (t.rows < 1 || t.cols < 1) return bad("dimensions must be positive");
  if (t.scaling == Scaling::none || !is_code(t.format)) return bad("it transposes codes");
  for (const std::string& problem : {problem_of(t.format, t.scaling, ScaledAlong::columns, t.rows, t.cols),
                                     problem_of(t.format, t.scaling, ScaledAlong::rows, t.cols, t.rows)})
    if (!problem.empty()) return bad(problem);
  return {{codes_of("codes", "R", t.format, t.scaling, ScaledAlong::columns, t.rows, t.cols),
           codes_of("transposed", "W", t.format, t.scaling, ScaledAlong::rows, t.cols, t.rows)},
          ""};
}

std::string sizes_text(const Amax& a) {
  return dims(a.rows, a.cols) + (a.hadamard ? " hadamard" : "") +
         (a.groups > 0 ? " in " + std::to_string(a.groups) + " groups" : "");
}

std::string sizes_text(const Quantise& q) {
  return dims(q.rows, q.cols) + " " + std::string(name_of(q.format)) + " " + name_of(q.scaling) +
         (q.rowwise ? " rowwise" : "") + (q.columnwise == ColumnCopy::none ? "" : " columnwise ") +
         (q.columnwise == ColumnCopy::none ? "" : name_of(q.columnwise)) + (q.hadamard ? " hadamard" : "") +
         (q.stochastic ? " stochastic" : "") + (q.records ? " +amax" : "") + (q.of_codes ? " of codes" : "") +
         (q.groups > 0 ? " in " + std::to_string(q.groups) + " groups" : "");
}

}  // namespace stretto
