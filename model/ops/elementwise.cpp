#include "model/ops/elementwise.hpp"

#include "base/values_of.hpp"
#include "model/ops/sizes_text.hpp"

namespace stretto {

const char* name_of(ElementwiseFn fn) {
  return name_in({"gelu", "gelu_backward", "add", "column_sum", "bias_add", "swiglu", "swiglu_backward", "accumulate"},
                 fn);
}

OperandList operands(const Elementwise& e) {
  using namespace operand_specs;
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

std::string sizes_text(const Elementwise& e) { return dims(e.rows, e.cols); }

}  // namespace stretto
