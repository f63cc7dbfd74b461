#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/codes.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// C[m,n] (W: =, A: +=) op(A)[m,k] · op(B)[k,n] (+ bias[n] on every row). Stored shapes: A is [m,k], or [k,m] when
// trans_a; B is [k,n], or [n,k] when trans_b. With an epilogue of GELU or the residual, Y[m,n] is that sum, and C,
// which is only written, is computed from Y:
//   gelu           X = Y, C = gelu(Y); X is saved for the gradient
//   gelu_backward  C = Y · gelu'(X), elementwise
//   bias_gradient  C as without an epilogue; X[1,m] += sums over k of op(A): A is the gradient of a sum with a bias
//   residual       C = X + Y; X and C do not overlap. Product, bias and X are summed in f32 when they are bf16, and
//                  rounded once; a separate addition would read the product rounded.
//   gelu_backward_bias_gradient  C = Y · gelu'(X), and S[1,n] += sums over the rows of C: S is the gradient of the bias
//                  that was added before the GELU
//
// With scalings A and B are codes with their scales (model/ops/codes.hpp), of the stored shapes above
// and scaled along k: along the rows of A and of B with trans_b, along the columns of A with trans_a and of B. Codes
// are multiplied as the numbers that they stand for; scales of blocks apply within the sum, which is in f32, and the
// tensors' factors, inverse_a · inverse_b, to the sum, before bias, epilogue and rounding. split_accumulation: sums are
// in f32 throughout, where Hopper's tensor cores otherwise keep fewer bits (CUBLASLT_MATMUL_DESC_FAST_ACCUM = 0).
// Operands: A R, B R, (bias[1,n] R when `bias`), (X W with gelu, R with gelu_backward, gelu_backward_bias_gradient and
// residual, A with bias_gradient), (S A with gelu_backward_bias_gradient), (inverse_a[1,1] f32 R, inverse_b[1,1] f32 R
// where scalings have factors), C W|A. C has the type of the step or a wider one.
enum class GemmEpilogue : std::uint8_t {
  none,
  gelu,
  gelu_backward,
  bias_gradient,
  residual,
  gelu_backward_bias_gradient,
};
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false, bias = false;
  GemmEpilogue epilogue = GemmEpilogue::none;
  Scaling scaling_a = Scaling::none, scaling_b = Scaling::none;
  bool split_accumulation = false;

  bool has_codes() const { return scaling_a != Scaling::none; }
  bool has_factors() const { return rule_of(scaling_a).has_factor; }
  // Index of X among the operands.
  std::size_t x_index() const { return bias ? 3 : 2; }
  bool sums_columns() const { return epilogue == GemmEpilogue::gelu_backward_bias_gradient; }  // the work has S
  std::size_t s_index() const { return x_index() + 1; }
  std::size_t inverse_index() const {
    return x_index() + (epilogue == GemmEpilogue::none ? 0 : sums_columns() ? 2 : 1);
  }
  std::size_t c_index() const { return inverse_index() + (has_factors() ? 2 : 0); }
  static constexpr const char* kKind = "gemm";
  static constexpr std::array kFields = {"m",    "n",        "k",         "trans_a",   "trans_b",
                                         "bias", "epilogue", "scaling_a", "scaling_b", "split_accumulation"};
  bool operator==(const Gemm&) const = default;
};
const char* name_of(GemmEpilogue epilogue);  // "none", "gelu", …

OperandList operands(const Gemm& work);
std::string sizes_text(const Gemm& work);
double counted_flops(const Gemm& work);

}  // namespace stretto
