#include "base/statistics.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace stretto {

double minimum(std::span<const double> values) { return percentile(values, 0); }
double maximum(std::span<const double> values) { return percentile(values, 100); }
double median(std::span<const double> values) { return percentile(values, 50); }

double percentile(std::span<const double> values, double percent) {
  assert(percent >= 0 && percent <= 100);
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  // Equal neighbours are returned unchanged, because interpolation between two infinities gives NaN.
  if (sorted[below] == sorted[above]) return sorted[below];
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

double spread_pct(std::span<const double> values) {
  const double middle = median(values);
  return middle > 0 ? 100 * (percentile(values, 90) - percentile(values, 10)) / middle : 0;
}

std::size_t index_of_median(std::span<const double> values) {
  assert(!values.empty());
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  return *middle;
}

}  // namespace stretto
