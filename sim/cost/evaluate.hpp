#pragma once
#include <span>

#include "sim/cost/features.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Returns the microseconds that the cost function gives for these features, as many as it has coefficients: the linear
// fit, times a correction by the nearest measurements,
//
//   exp( Σ wᵢ log(measuredᵢ / fitᵢ) / (Σ wᵢ + w₀) ),   wᵢ = dᵢ^−p,   w₀ = d₀^−p
//
// (inverse distance weighting, Shepard 1968), where dᵢ is the root mean square difference of the features' logarithms.
// At a measured point the result is the measured time (the geometric mean where there are several), and far from all
// points it is the fit. A feature that is 0 at some point is left out of the distance. On a GPU a GEMM's time jumps
// with tiles and waves, which a sum of products cannot follow; docs/platform.md says how much the correction improves
// that.
double evaluate_us(const CostFit& fit, std::span<const double> features);

// Returns the works for which the platform has cost functions: the work itself, or its parts. A host has no epilogues
// and runs the parts one after the other; so does a GPU whose calibration has not measured the epilogue.
std::span<const WorkCost> known_as(const Platform& platform, const WorkCost& cost);

// Returns the microseconds that work takes on the platform. Throws Error(input) naming the cost that its file lacks,
// and how to get it.
double cost_us(const Platform& platform, const WorkCost& cost);

}  // namespace stretto::sim
