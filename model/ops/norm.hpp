#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// LayerNorm over the last dimension (Ba et al., arXiv 1607.06450). With `heads` above 1 every
// row of x, y, dx, dy and stats holds this many heads side by side, each with a norm of its own and all with one gamma
// and beta: x is [rows, heads·cols], stats [rows, heads·2].
// forward: x[rows,cols] R, gamma[1,cols] R, beta[1,cols] R, y W, stats[rows,2] W (mean, reciprocal standard deviation).
// dgrad:   dy R, x R, stats R, gamma R, dx W|A (A: dx already has the residual branch's gradient, and is added to).
// wgrad:   dy R, x R, stats R, dgamma A, dbeta A.
// backward: dy R, x R, stats R, gamma R, dgamma A, dbeta A, dx W|A.
struct LayerNorm {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, heads = 1;
  double epsilon = 1e-5;

  std::int64_t all_rows() const { return rows * heads; }
  static constexpr const char* kKind = "layernorm";
  static constexpr std::array kFields = {"pass", "rows", "cols", "heads", "epsilon"};
  bool operator==(const LayerNorm&) const = default;
};

// RMSNorm over the last dimension (Zhang & Sennrich, arXiv 1910.07467):
// y = r · x ∘ gamma, r = 1/sqrt(mean(x²) + epsilon). `heads` as in LayerNorm: stats are [rows, heads].
// forward: x[rows,cols] R, gamma[1,cols] R, y W, stats[rows,1] W (r).
// dgrad:   dy R, x R, stats R, gamma R, dx W|A (as LayerNorm).
// wgrad:   dy R, x R, stats R, dgamma A.
// backward: dy R, x R, stats R, gamma R, dgamma A, dx W|A.
struct RmsNorm {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, cols = 0, heads = 1;
  double epsilon = 1e-5;

  std::int64_t all_rows() const { return rows * heads; }
  static constexpr const char* kKind = "rmsnorm";
  static constexpr std::array kFields = {"pass", "rows", "cols", "heads", "epsilon"};
  bool operator==(const RmsNorm&) const = default;
};

OperandList operands(const LayerNorm& work);
OperandList operands(const RmsNorm& work);
std::string sizes_text(const LayerNorm& work);
std::string sizes_text(const RmsNorm& work);

}  // namespace stretto
