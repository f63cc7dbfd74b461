#pragma once
#include <cstdint>

namespace stretto {

// How a router's logits become scores of experts (Megatron-LM's --moe-router-score-function).
enum class RouterScore : std::uint8_t { softmax, sigmoid };
// Returns "softmax" or "sigmoid".
inline const char* name_of(RouterScore score) { return score == RouterScore::softmax ? "softmax" : "sigmoid"; }

}  // namespace stretto
