#pragma once
#include <cstdint>

#include "base/values_of.hpp"

namespace stretto {

// How a router of experts turns logits into scores (Megatron-LM's --moe-router-score-function).
enum class RouterScore : std::uint8_t { softmax, sigmoid };
inline const char* name_of(RouterScore score) { return name_in({"softmax", "sigmoid"}, score); }

}  // namespace stretto
