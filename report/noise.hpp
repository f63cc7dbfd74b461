#pragma once
#include <vector>

namespace stretto {

// The difference between the medians of two runs of one schedule, in percent of the step: a smaller difference means
// nothing.
struct NoiseFloor {
  double pct = 0;                    // 95 of 100 pairs of runs differ by less
  double low_pct = 0, high_pct = 0;  // interval of `pct` itself, with 90 % confidence
};

// Estimates the floor from the steps of rows that took turns, [row][turn]; all rows have equally many turns, at least
// one. The first and the last row measure one schedule. Turns are drawn again with replacement, the same turns for all
// rows, because a slow moment of the machine affects all of them (bootstrap: Efron 1979), and the medians of each pair
// of rows, made equal before, are compared. The floor is no less than the difference of the first and the last row.
// With fewer than three turns all values are NaN, because the floor cannot be known. Equal inputs give equal results.
NoiseFloor noise_floor(const std::vector<std::vector<double>>& rows);

}  // namespace stretto
