#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"

namespace stretto {

// gelu:            x R, y W.   tanh approximation as GPT-2.
// gelu_backward:   dy R, x R, dx W.
// add:             a R, b R, c W.
// column_sum:      dy[rows,cols] R, db[1,cols] A.   (bias gradients)
// bias_add:        a R, b R, bias[1,cols] R, c W.   c = a + (b + bias)
// swiglu:          gate R, up R, y W.   y = silu(gate) ∘ up, silu(g) = g · sigmoid(g) (Shazeer, arXiv 2002.05202).
// swiglu_backward: dy R, gate R, up R, dx[rows,2·cols] W.   dx = [dgate, dup]
// accumulate:      a R, c A.   c += a
enum class ElementwiseFn : std::uint8_t {
  gelu,
  gelu_backward,
  add,
  column_sum,
  bias_add,
  swiglu,
  swiglu_backward,
  accumulate,
};
const char* name_of(ElementwiseFn fn);  // "gelu", …
struct Elementwise {
  ElementwiseFn fn = ElementwiseFn::add;
  std::int64_t rows = 0, cols = 0;

  static constexpr std::array kFields = {"fn", "rows", "cols"};
  bool operator==(const Elementwise&) const = default;
};

OperandList operands(const Elementwise& work);
std::string sizes_text(const Elementwise& work);

}  // namespace stretto
