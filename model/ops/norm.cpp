#include "model/ops/norm.hpp"

#include "model/ops/sizes_text.hpp"

namespace stretto {

namespace {

// LayerNorm has a beta, and a mean in its stats; RMSNorm has neither.
OperandList norm_operands(Pass pass, std::int64_t rows, std::int64_t cols, std::int64_t heads, bool has_beta) {
  using namespace operand_specs;
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

template <class Norm>
std::string describe_norm(const Norm& norm) {
  return std::string(name_of(norm.pass)) + " " + dims(norm.rows, norm.cols) +
         (norm.heads > 1 ? " heads " + std::to_string(norm.heads) : "");
}

}  // namespace

OperandList operands(const LayerNorm& n) {
  using namespace operand_specs;
  return norm_operands(n.pass, n.rows, n.cols, n.heads, true);
}

OperandList operands(const RmsNorm& n) {
  using namespace operand_specs;
  return norm_operands(n.pass, n.rows, n.cols, n.heads, false);
}

std::string sizes_text(const LayerNorm& n) { return describe_norm(n); }

std::string sizes_text(const RmsNorm& n) { return describe_norm(n); }

}  // namespace stretto
