#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/dtype.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// One bound operand: the address of its data, in the executor's kind of memory (host or device), and its shape in
// elements. Does not own the data. If rows is 1, ld has no meaning.
struct Operand {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::int64_t rows = 1, cols = 1, ld = 1;  // row-major, ld elements between rows
  AccessMode mode = AccessMode::read;
};

// Returns the operands of one part of a fused work, in the part's order; `whole` has the operands of the fused work. An
// operand that the part only reads has AccessMode::read, whatever its mode in `whole`.
inline std::vector<Operand> operands_of(const Part& part, std::span<const Operand> whole) {
  std::vector<Operand> operands;
  for (const Part::Operand& operand : part.operands) {
    operands.push_back(whole[operand.index]);
    if (operand.is_read) operands.back().mode = AccessMode::read;
  }
  return operands;
}

}  // namespace stretto::exec
