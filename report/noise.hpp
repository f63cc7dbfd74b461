#pragma once
#include <vector>

namespace stretto {

// How far the medians of two runs of one schedule lie apart, in percent of the step: a difference below it is none.
struct NoiseFloor {
  double pct = 0;                    // 95 of 100 pairs of runs differ by less
  double low_pct = 0, high_pct = 0;  // where `pct` itself lies, with 90 % confidence
};

// From the steps of rows that took turns, [row][turn]; all rows have as many turns, at least one. The first and the
// last row are the same schedule. Turns are drawn again with replacement, the same for all rows, because a slow moment
// of the machine meets all of them (bootstrap: Efron 1979), and the medians of each pair of rows, made equal before,
// are compared. It is no less than what the first and the last row differ by. With fewer than three turns nothing is
// known of it: all are NaN. Equal inputs give equal results.
NoiseFloor noise_floor(const std::vector<std::vector<double>>& rows);

}  // namespace stretto
