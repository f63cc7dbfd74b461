#include "exec/text/draw.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/rng.hpp"

namespace stretto::exec {

std::int32_t draw_token(std::span<const double> logits, const Drawing& drawing, std::uint64_t place) {
  assert(!logits.empty());
  const auto most_likely = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (drawing.temperature == 0) return most_likely;
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (drawing.top_k > 0 && drawing.top_k < static_cast<std::int64_t>(tokens.size())) {
    std::stable_sort(tokens.begin(), tokens.end(), [&](std::int32_t a, std::int32_t b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    tokens.resize(static_cast<std::size_t>(drawing.top_k));
  }
  const double most = logits[static_cast<std::size_t>(most_likely)];
  const auto weight = [&](std::int32_t token) {
    return std::exp((logits[static_cast<std::size_t>(token)] - most) / drawing.temperature);
  };
  double sum = 0;
  for (const std::int32_t token : tokens) sum += weight(token);
  double left = uniform(drawing.seed, stream_of("sample"), place) * sum;
  for (const std::int32_t token : tokens)
    if (left -= weight(token); left < 0) return token;
  return most_likely;  // rounding has left something
}

}  // namespace stretto::exec
