#pragma once
#include <string>
#include <vector>

#include "predict/built_step.hpp"

namespace stretto::validate {

// A step that was measured, for fitting constants to it.
struct MeasuredStep {
  const predict::BuiltStep* step = nullptr;
  double measured_s = 0;
};

// A fitted constant: as it comes with Stretto, and by another set of steps.
struct Refitted {
  std::string name;
  double shipped = 0, value = 0;
};

// Constants of a platform and a profile that were fitted to published steps, fitted again to `steps` alone.
struct Refit {
  sim::Platform platform;
  Framework framework;
  // Constants that a step depends on and that have an interval, which bounds them. Others stay as they are.
  std::vector<Refitted> constants;
};

// Minimises the mean of |ln(predicted / measured)| by coordinate descent, each coordinate by golden-section search
// (Kiefer 1953) over its interval. Begins in the middle of all intervals, so that the shipped values play no part but
// through the intervals themselves. Deterministic; the minimum is a local one.
Refit refit(const std::vector<MeasuredStep>& steps, const sim::Platform& platform, const Framework& framework);

}  // namespace stretto::validate
