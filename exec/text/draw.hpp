#pragma once
#include <cstdint>
#include <span>

namespace stretto::exec {

// How the next token is chosen.
struct Drawing {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;  // only this number of the most likely tokens can be drawn; 0: all
  std::uint64_t seed = 1234;
};

// Returns a token drawn with the probabilities of softmax(logits / temperature). A pure function of its arguments;
// `place` is the number of tokens before it. Of equal logits the lower token comes first.
std::int32_t draw_token(std::span<const double> logits, const Drawing& drawing, std::uint64_t place);

}  // namespace stretto::exec
