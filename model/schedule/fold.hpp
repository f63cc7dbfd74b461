#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// An order as loops, for printing: a call, or a body that is repeated `count` times. With each repetition the layer and
// the micro-batch of every call in the body advance by the given steps.
struct FoldedCall {
  const Call* call = nullptr;  // nullptr: a repetition; points into the order
  std::vector<FoldedCall> body;
  std::int64_t count = 1;
  std::int64_t layer_step = 0, micro_batch_step = 0;
};

// Folds consecutive layers (up or down), then consecutive micro-batches. Calls with waits are never folded. An
// expansion of the result gives exactly `order`, which must outlive the result.
std::vector<FoldedCall> fold(const std::vector<Call>& order);

}  // namespace stretto
