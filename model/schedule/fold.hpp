#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// An order with its repetition found: a call, or a body that is repeated `count` times while the layer or the
// micro-batch of everything in it advances by a step.
struct FoldedCall {
  const Call* call = nullptr;  // nullptr: a repetition; points into the order
  std::vector<FoldedCall> body;
  std::int64_t count = 1;
  std::int64_t layer_step = 0, micro_batch_step = 0;
};

// Folds first consecutive layers (up or down), then consecutive micro-batches. Calls with waits are never folded.
// Expanding the result gives exactly `order`, which must outlive it.
std::vector<FoldedCall> fold(const std::vector<Call>& order);

}  // namespace stretto
