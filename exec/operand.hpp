#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/dtype.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// One bound operand: where the data is, in whatever memory the executor has, and what shape it has. Does not own.
struct Operand {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::int64_t rows = 1, cols = 1, ld = 1;  // row-major, ld elements between rows
  AccessMode mode = AccessMode::read;
};

// The operands of a part of a fused work, out of those of the whole.
inline std::vector<Operand> operands_of(const Part& part, std::span<const Operand> whole) {
  std::vector<Operand> operands;
  for (const Part::Operand& operand : part.operands) {
    operands.push_back(whole[operand.index]);
    if (operand.is_read) operands.back().mode = AccessMode::read;
  }
  return operands;
}

}  // namespace stretto::exec
