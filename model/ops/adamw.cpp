#include "model/ops/adamw.hpp"

namespace stretto {

OperandList operands(const AdamW& a) {
  using namespace operand_specs;
  if (a.elements < 1 || a.shards < 1) return bad("elements and shards must be positive");
  for (const AdamW::Range& range : a.decayed)
    if (range.begin < 0 || range.end < range.begin || range.end > a.elements * a.shards)
      return bad("decayed range [" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
                 ") leaves the bucket of " + std::to_string(a.elements * a.shards));
  OperandList list;
  list.operands = {vector_of("grad", "R", a.elements),
                   scalar_of("norm_squared", "R"),
                   vector_of("hyper", "R", 8, Type::f64),
                   vector_of("param", a.master && !a.remainders ? "W" : "A", a.elements),
                   vector_of("m", "A", a.elements, Type::floating_or_codes),
                   vector_of("v", "A", a.elements, Type::floating_or_codes)};
  if (a.remainders && !a.master) return bad("remainders are those of masters");
  if (a.master)
    list.operands.push_back(vector_of("master", "A", a.elements, a.remainders ? Type::i16 : Type::floating));
  return list;
}

std::string sizes_text(const AdamW& a) {
  return std::to_string(a.elements) + " of " + std::to_string(a.shards) + " shards";
}

}  // namespace stretto
