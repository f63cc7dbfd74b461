#pragma once
#include <cstddef>
#include <span>

namespace stretto {

// Order statistics of values in any order. NaN when there are none.
double minimum(std::span<const double> values);
double maximum(std::span<const double> values);
// Returns the mean of the two middle values when their number is even.
double median(std::span<const double> values);
// Linear interpolation between the closest ranks (NumPy's default, type 7 of Hyndman and Fan 1996); percent in [0,
// 100].
double percentile(std::span<const double> values, double percent);
// Returns the spread of values: (90th − 10th percentile) / median, in percent; 0 where the median is not above 0.
double spread_pct(std::span<const double> values);

// Returns the index of the middle value (of the upper one when their number is even), for a caller that needs one of
// the measured objects and not a number. Needs at least one value.
std::size_t index_of_median(std::span<const double> values);

}  // namespace stretto
