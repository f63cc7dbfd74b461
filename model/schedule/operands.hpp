#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// The operand lists of model/schedule/work.hpp as data, for the verifier.

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
  const char* name = "";   // the name in work.hpp
  const char* modes = "";  // "R", "W", "A" or "WA" (either)
  std::int64_t rows = 1, cols = 1;
  OperandShape shape = OperandShape::matrix;
  OperandType type = OperandType::floating;
};

struct OperandList {
  std::vector<OperandSpec> operands;
  std::string error;  // unless "", the work itself is invalid, for this reason
};

// Returns the operands of a work. `group_size` is the number of members of the communicator when the work is a
// collective.
OperandList operands_of(const Work& work, std::int64_t group_size);

// Returns whether a written operand of the work may lie on the bytes of a read operand: the kernels read an element, or
// the row that it belongs to, before they write there. A product or attention would read elements that it has
// overwritten.
bool may_be_in_place(const Work& work);

}  // namespace stretto
