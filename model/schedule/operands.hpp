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
enum class OperandType : std::uint8_t { floating, i32, f64, e4m3, any };

struct OperandSpec {
  const char* name = "";   // as in work.hpp
  const char* modes = "";  // "R", "W", "A" or "WA" (either)
  std::int64_t rows = 1, cols = 1;
  OperandShape shape = OperandShape::matrix;
  OperandType type = OperandType::floating;
};

struct OperandList {
  std::vector<OperandSpec> operands;
  std::string error;  // not "": the work itself makes no sense, in words
};

// `group_size`: members of the communicator, when the work is a collective.
OperandList operands_of(const Work& work, std::int64_t group_size);

// Whether an operand that the work writes may lie where one does that it reads: its kernels read an element, or the row
// that it belongs to, before they write there. A product or attention would read what it has overwritten.
bool may_be_in_place(const Work& work);

}  // namespace stretto
