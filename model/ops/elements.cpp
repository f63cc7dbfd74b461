#include "model/ops/elements.hpp"

#include "model/ops/sizes_text.hpp"

namespace stretto {

OperandList operands(const Fill& f) {
  using namespace operand_specs;
  if (f.elements < 1) return bad("elements must be positive");
  return {{{"dst", "W", 1, f.elements, Shape::elements}}, ""};
}

OperandList operands(const Cast& c) {
  using namespace operand_specs;
  if (c.elements < 1) return bad("elements must be positive");
  return {{{"src", "R", 1, c.elements, Shape::elements, Type::floating_or_codes},
           {"dst", "W", 1, c.elements, Shape::elements, Type::floating_or_codes}},
          ""};
}

OperandList operands(const ScaledCast& c) {
  using namespace operand_specs;
  if (c.elements < 1 || c.shards < 1) return bad("elements and shards must be positive");
  if (c.elements % kScaleBlock != 0) return bad("a shard must be whole blocks of a scale");
  if (c.pass != Pass::forward && c.pass != Pass::backward) return bad("it has a way there and a way back");
  const bool is_forward = c.pass == Pass::forward;
  const OperandSpec x = vector_of("x", is_forward ? "R" : "W", c.shards * c.elements),
                    packed = vector_of("packed", is_forward ? "W" : "R", c.shards * c.packed(), Type::e4m3);
  if (is_forward) return {{x, packed}, ""};
  return {{packed, x}, ""};
}

OperandList operands(const LocalReduce& r) {
  using namespace operand_specs;
  if (r.parts < 1 || r.elements < 1) return bad("dimensions must be positive");
  return {{vector_of("parts", "R", r.parts * r.elements), {"sum", "W", 1, r.elements, Shape::elements}}, ""};
}

OperandList operands(const SumSquares& s) {
  using namespace operand_specs;
  if (s.elements < 1) return bad("elements must be positive");
  return {{vector_of("x", "R", s.elements), scalar_of("sum", "A")}, ""};
}

std::string sizes_text(const Fill& f) { return std::to_string(f.elements); }

std::string sizes_text(const Cast& c) { return std::to_string(c.elements); }

std::string sizes_text(const ScaledCast& c) { return std::string(name_of(c.pass)) + " " + dims(c.shards, c.elements); }

std::string sizes_text(const LocalReduce& r) { return dims(r.parts, r.elements); }

std::string sizes_text(const SumSquares& s) { return std::to_string(s.elements); }

}  // namespace stretto
