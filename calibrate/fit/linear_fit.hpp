#pragma once
#include <string>
#include <vector>

#include "sim/platform.hpp"

namespace stretto::calibrate {

// One point of a cost function: features as sim/cost/features defines them, and the measured time.
struct Sample {
  std::string key;
  std::vector<double> features;
  sim::DemandClass cls = sim::DemandClass::memory;
  double us = 0;          // median over instances and repeats
  double spread_pct = 0;  // (p90 − p10) / median over instances and repeats
};

// Fits by least squares in relative error, (predicted − measured) / (measured + 5 µs): 3 % counts equally at 0.1 ms and
// at 10 ms, and a microsecond in an operation of two counts little, as it does in a step. Coefficients are ≥ 0, because
// time cannot fall when work is added. Non-negativity by Lawson & Hanson's active set (1974, ch. 23). A second pass
// weighs points by 1/max(1, error/median error), which removes the pull of outliers (Huber 1964). Needs at least one
// sample; all have equally many features.
sim::CostFit fit_linear(const std::vector<Sample>& samples, const std::string& origin);

// Fits as fit_linear, and keeps the measurements, which correct the times near them (sim/cost/evaluate.hpp). Its errors
// are those of each sample as predicted from the measurements of all other samples (the fit uses all), which is what a
// shape that was not measured may expect. Samples with equal features are one point, their geometric mean.
sim::CostFit fit_corrected(const std::vector<Sample>& samples, const std::string& origin);

}  // namespace stretto::calibrate
