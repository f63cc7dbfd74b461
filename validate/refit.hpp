#pragma once
#include <string>
#include <vector>

#include "predict/quick_step.hpp"

namespace stretto::validate {

// A measured step to which constants are fitted.
struct MeasuredStep {
  const predict::QuickStep* step = nullptr;
  double measured_s = 0;
};

// A fitted constant: its shipped value, and its value from another set of steps.
struct Refitted {
  std::string name;
  double shipped = 0, value = 0;
};

// Constants of a platform and a profile that were fitted to published steps, fitted again only to `steps`.
struct Refit {
  sim::Platform platform;
  Framework framework;
  // Constants that a step depends on and that have an interval, which bounds them. Other constants stay unchanged.
  std::vector<Refitted> constants;
};

// Minimises the mean of |ln(predicted / measured)| by coordinate descent, each coordinate by golden-section search
// (Kiefer 1953) over its interval. Begins in the middle of all intervals, so that the shipped values matter only
// through the intervals themselves. Deterministic; the minimum is a local one.
Refit refit(const std::vector<MeasuredStep>& steps, const sim::Platform& platform, const Framework& framework);

}  // namespace stretto::validate
