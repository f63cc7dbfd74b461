#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <optional>
#include <vector>

namespace stretto::cuda {

// Among equally fast algorithms the library's favourite is taken, not a random one: executors of one schedule should
// compute the same bits.
constexpr float kWorthIt = 0.97f;

// Which of `count` candidates to take, given the most promising first. time_ms(i) runs one and gives an
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

// The middle one, or the greater of two; at least one.
inline float median_of(std::vector<float> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stretto::cuda
