#pragma once
#include <cstdint>

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

}  // namespace stretto::exec
