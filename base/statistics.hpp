#pragma once
#include <cstddef>
#include <span>

namespace stretto {

// Order statistics of values in any order. NaN when there are none.
double minimum(std::span<const double> values);
double maximum(std::span<const double> values);
// With an even number of values, the mean of the two in the middle.
double median(std::span<const double> values);
// Linear interpolation between the closest ranks (NumPy's default, type 7 of Hyndman and Fan 1996); percent in [0,
// 100].
double percentile(std::span<const double> values, double percent);
// How far values scatter: (90th − 10th percentile) / median, in percent; 0 where the median is not above 0.
double spread_pct(std::span<const double> values);

// For who needs one of the things that were measured and not a number: the index of the value in the middle, of an even
// number of values the upper of the two. There must be one at least.
std::size_t index_of_median(std::span<const double> values);

}  // namespace stretto
