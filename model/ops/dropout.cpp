#include "model/ops/dropout.hpp"

#include "base/values_of.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

const char* name_of(DropoutSite site) { return name_in({"attention", "embedding", "residual_1", "residual_2"}, site); }

OperandList operands(const Dropout& d) {
  using namespace operand_specs;
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

std::string sizes_text(const Dropout& d) {
  return std::string(name_of(d.pass)) + " " + dims(d.rows, d.cols) + (d.residual ? " +residual" : "") +
         (d.bias ? " +bias" : "") + (d.keeps_mask ? " +mask" : "");
}

}  // namespace stretto
