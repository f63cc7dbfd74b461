#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/dtype.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// One bound operand: the address of its data, in the executor's kind of memory, and its shape. Does not own the data.
struct Operand {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::int64_t rows = 1, cols = 1, ld = 1;  // row-major, ld elements between rows
  AccessMode mode = AccessMode::read;
};

// Returns the operands of one part of a fused work, out of the operands of the fused work.
inline std::vector<Operand> operands_of(const Part& part, std::span<const Operand> whole) {
  std::vector<Operand> operands;
  for (const Part::Operand& operand : part.operands) {
    operands.push_back(whole[operand.index]);
    if (operand.is_read) operands.back().mode = AccessMode::read;
  }
  return operands;
}

}  // namespace stretto::exec
