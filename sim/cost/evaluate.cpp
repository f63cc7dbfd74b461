#include "sim/cost/evaluate.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

// Chosen by leave-one-out tests on published GEMM times (docs/platform.md).
constexpr double kPower = 3, kReach = 0.3;

double linear_us(const CostFit& fit, std::span<const double> features) {
  return std::inner_product(features.begin(), features.end(), fit.coefficients.begin(), 0.0);
}

}  // namespace

double evaluate_us(const CostFit& fit, std::span<const double> features) {
  assert(fit.coefficients.size() == features.size());
  const double us = linear_us(fit, features);
  if (fit.measured.empty()) return us;
  std::vector<std::size_t> dimensions;
  for (std::size_t j = 0; j < features.size(); ++j)
    if (features[j] > 0 && std::all_of(fit.measured.begin(), fit.measured.end(),
                                       [&](const MeasuredPoint& point) { return point.features[j] > 0; }))
      dimensions.push_back(j);
  double weighed = 0, weights = std::pow(kReach, -kPower), here = 0;
  int points_here = 0;
  for (const MeasuredPoint& point : fit.measured) {
    const double fitted_us = linear_us(fit, point.features);
    if (fitted_us <= 0) continue;
    double squares = 0;
    for (const std::size_t j : dimensions) {
      const double difference = std::log(features[j] / point.features[j]);
      squares += difference * difference;
    }
    const double ratio = std::log(point.us / fitted_us);
    if (squares < 1e-18) {
      here += ratio;
      ++points_here;
      continue;
    }
    const double weight = std::pow(squares / static_cast<double>(dimensions.size()), -kPower / 2);
    weighed += weight * ratio;
    weights += weight;
  }
  return us * std::exp(points_here > 0 ? here / points_here : weighed / weights);
}

std::span<const WorkCost> known_as(const Platform& platform, const WorkCost& cost) {
  const bool in_parts = !cost.parts.empty() && (!platform.gpu || !platform.costs.contains(cost.key));
  return in_parts ? std::span(cost.parts) : std::span(&cost, 1);
}

double cost_us(const Platform& platform, const WorkCost& cost) {
  const auto fit = platform.costs.find(cost.key);
  if (fit == platform.costs.end()) {
    if (cost.key.starts_with("nccl_"))
      throw input_error(
          "platform " + platform.name + " has no cost \"" + cost.key +
          "\"; run stretto calibrate --backend cuda --ranks N on a machine of several GPUs to measure it");
    // Keys end in the type that was computed in.
    const std::string operation = cost.key.substr(0, cost.key.rfind('_') + 1);
    for (const auto& [key, other] : platform.costs)
      if (key.rfind('_') + 1 == operation.size() && key.starts_with(operation))
        throw input_error("platform " + platform.name + " has no cost \"" + cost.key + "\", only \"" + key +
                          "\": it was calibrated for another [training] precision");
    throw input_error("platform " + platform.name + " has no cost \"" + cost.key +
                      "\"; run stretto calibrate to measure it");
  }
  if (fit->second.coefficients.size() != cost.features.size())
    throw input_error("platform " + platform.name + ", cost \"" + cost.key + "\": expected " +
                      std::to_string(cost.features.size()) + " coefficients, got " +
                      std::to_string(fit->second.coefficients.size()) +
                      "; another version of stretto wrote it: calibrate again");
  return evaluate_us(fit->second, cost.features);
}

}  // namespace stretto::sim
