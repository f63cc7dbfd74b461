#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <optional>
#include <vector>

namespace stretto::cuda {

// Among almost equally fast algorithms the library's favourite is taken, not a random one, so that executors of one
// schedule compute equal bits.
constexpr float kWorthIt = 0.97f;

// Returns which of `count` candidates to take, with the most promising first. time_ms(i) runs one and returns an
// std::optional<float>: nothing when it does not run. A later one is taken where it needs less than kWorthIt of the
// time. Nothing when none runs.
template <class Time>
std::optional<std::size_t> fastest_of(std::size_t count, Time time_ms) {
  std::optional<std::size_t> best;
  float best_ms = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<float> ms = time_ms(i);
    if (!ms || (best && *ms >= kWorthIt * best_ms)) continue;
    best = i;
    best_ms = *ms;
  }
  return best;
}

// Returns the middle value, or the greater of the two middle ones; there must be at least one.
inline float median_of(std::vector<float> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stretto::cuda
