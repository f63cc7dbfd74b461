#pragma once
#include <string>
#include <utility>
#include <vector>

#include "predict/quick_step.hpp"

namespace stretto::predict {

// The 80 % interval of one predicted step, in natural logarithms of time around the prediction. Each constant with an
// interval of its own is moved to both of its ends; the changes add in quadrature: to first order, for independent
// constants (GUM, JCGM 100:2008, 5.1.2).
struct Spread {
  double down = 0, up = 0;  // ≥ 0: the interval is [t · e^−down, t · e^up]
  // constant → half of the distance between its ends; largest first
  std::vector<std::pair<std::string, double>> shares;
};

// Half of the 80 % interval of a step in one container around its mean over containers: published steps of equal
// settings deviate by 0.025 in the logarithm (scripts/figures computes it for docs/validate.md, and a test compares),
// and 80 % of normal deviations are within 1.28 of that.
constexpr double kBetweenContainers = 1.28 * 0.025;
// Adds that to a step's interval.
void add_containers(Spread& spread);

// Returns the interval of a step. `predicted_s`: the step with the shipped constants. A constant that changes no cost
// is not simulated.
Spread spread_of(const predict::QuickStep& step, sim::Platform platform, Framework framework, double predicted_s);

}  // namespace stretto::predict
