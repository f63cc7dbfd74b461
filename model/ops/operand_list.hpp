#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/ops/pass.hpp"

namespace stretto {

// The operands of a work as data, in the order of an operation's accesses. The comment of each work in this folder
// lists the same operands in words, and its `operands` returns them.

enum class OperandShape : std::uint8_t {
  matrix,    // exactly rows × cols, any ld
  table,     // at least rows × exactly cols
  vector,    // contiguous, rows · cols elements
  elements,  // rows · cols elements in any shape
};
enum class OperandType : std::uint8_t {
  floating,
  i32,
  f32,
  f64,
  e4m3,
  codes,              // e4m3, e5m2 or e2m1x2
  floating_or_codes,  // what is moved or copied
  i16,
  any,
};

struct OperandSpec {
  const char* name = "";   // the name in the work's comment
  const char* modes = "";  // "R", "W", "A" or "WA" (either)
  std::int64_t rows = 1, cols = 1;
  OperandShape shape = OperandShape::matrix;
  OperandType type = OperandType::floating;
};

struct OperandList {
  std::vector<OperandSpec> operands;
  std::string error;  // unless "", the work itself is invalid, for this reason
};

// Words for lists of operands.
namespace operand_specs {

using Shape = OperandShape;
using Type = OperandType;

inline OperandSpec vector_of(const char* name, const char* modes, std::int64_t elements, Type type = Type::floating) {
  return {name, modes, 1, elements, Shape::vector, type};
}
inline OperandSpec scalar_of(const char* name, const char* modes) { return vector_of(name, modes, 1, Type::f64); }
inline OperandSpec table_of(const char* name, const char* modes, std::int64_t rows, std::int64_t cols) {
  return {name, modes, rows, cols, Shape::table, Type::floating};
}

inline bool has_wgrad(Pass pass) { return pass == Pass::wgrad || pass == Pass::backward; }
inline bool has_dgrad(Pass pass) { return pass == Pass::dgrad || pass == Pass::backward; }

inline OperandList bad(std::string error) { return {{}, std::move(error)}; }

}  // namespace operand_specs
}  // namespace stretto
