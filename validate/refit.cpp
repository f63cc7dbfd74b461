#include "validate/refit.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel.hpp"
#include "predict/constants.hpp"

namespace stretto::validate {
namespace {

constexpr int kSweeps = 3;          // sweeps over all constants
constexpr int kSections = 6;        // sections of an interval, each 0.618 of the previous: to 1/18
constexpr double kEnough = 0.0005;  // a sweep that gains less is the last

// Keeps the latest costs of each step, and its error with them: most constants leave the costs of some steps unchanged.
class Objective {
 public:
  Objective(const std::vector<MeasuredStep>& steps, const Refit& fit)
      : steps_(steps), fit_(fit), known_(steps.size()) {}

  double operator()() {
    parallel_each(std::int64_t(steps_.size()), [&](std::int64_t i) { update(static_cast<std::size_t>(i)); });
    double sum = 0;
    for (const Known& known : known_) sum += known.error;
    return sum / double(steps_.size());
  }

 private:
  struct Known {
    sim::Costs costs;
    double error = 0;
  };
  void update(std::size_t i) {
    sim::Costs costs = steps_[i].step->costs(fit_.platform, fit_.framework);
    if (costs == known_[i].costs) return;
    known_[i].error = std::abs(std::log(steps_[i].step->step_s(fit_.platform, fit_.framework) / steps_[i].measured_s));
    known_[i].costs = std::move(costs);
  }

  const std::vector<MeasuredStep>& steps_;
  const Refit& fit_;
  std::vector<Known> known_;
};

// Sets `value` to the point at which the objective is smallest, among the tried points and the old value; returns the
// minimum.
double golden_section(double& value, double low, double high, double smallest, Objective& objective) {
  double best = value;
  const auto at = [&](double x) {
    value = x;
    const double y = objective();
    if (y < smallest) smallest = y, best = x;
    return y;
  };
  const double ratio = 1 / std::numbers::phi;
  double left = high - ratio * (high - low), right = low + ratio * (high - low);
  double at_left = at(left), at_right = at(right);
  for (int section = 1; section < kSections; ++section) {
    if (at_left <= at_right) {
      high = right, right = left, at_right = at_left;
      left = high - ratio * (high - low), at_left = at(left);
    } else {
      low = left, left = right, at_left = at_right;
      right = low + ratio * (high - low), at_right = at(right);
    }
  }
  value = best;
  return smallest;
}

// Returns whether any step depends on the constant, between the ends of its interval.
bool matters(const predict::Constant& constant, const std::vector<MeasuredStep>& steps, const Refit& fit) {
  Quantity& q = *constant.quantity;
  const double value = q.value;
  const auto costs_at = [&](const MeasuredStep& step, double end) {
    q.value = end;
    return step.step->costs(fit.platform, fit.framework);
  };
  const bool does = std::any_of(steps.begin(), steps.end(), [&](const MeasuredStep& step) {
    return !(costs_at(step, q.low) == costs_at(step, q.high));
  });
  q.value = value;
  return does;
}

}  // namespace

Refit refit(const std::vector<MeasuredStep>& steps, const sim::Platform& platform, const Framework& framework) {
  Refit fit{platform, framework, {}};
  std::vector<predict::Constant> free;
  for (const predict::Constant& constant : predict::constants_of(*fit.platform.accelerator, fit.framework))
    if (constant.is_fitted() && constant.has_interval() && matters(constant, steps, fit)) free.push_back(constant);
  for (const predict::Constant& constant : free) {
    Quantity& q = *constant.quantity;
    fit.constants.push_back({constant.name, q.value, 0});
    q.value = (q.low + q.high) / 2;
  }
  if (free.empty()) return fit;
  Objective objective(steps, fit);
  double smallest = objective();
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const double before = smallest;
    for (const predict::Constant& constant : free) {
      Quantity& q = *constant.quantity;
      smallest = golden_section(q.value, q.low, q.high, smallest, objective);
    }
    if (before - smallest < kEnough) break;
  }
  for (std::size_t i = 0; i < free.size(); ++i) fit.constants[i].value = free[i].quantity->value;
  return fit;
}

}  // namespace stretto::validate
