#pragma once
#include <span>

#include "sim/cost/features.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Microseconds that the cost function gives for these features, as many as it has coefficients: the linear fit, times a
// correction by what was measured near them,
//
//   exp( Σ wᵢ log(measuredᵢ / fitᵢ) / (Σ wᵢ + w₀) ),   wᵢ = dᵢ^−p,   w₀ = d₀^−p
//
// (inverse distance weighting, Shepard 1968), dᵢ the root mean square difference of the features' logarithms. It is
// what was measured at a measured point (the geometric mean where several are there), and the fit alone far from all. A
// feature that is 0 somewhere counts in no distance. On a GPU a GEMM's time jumps with tiles and waves, which a sum of
// products cannot follow; docs/platform.md says what this gains.
double evaluate_us(const CostFit& fit, std::span<const double> features);

// By which cost functions the platform knows the work: its own, or its parts'. A host has no epilogues: what it runs
// are the parts, one after the other; and so are they of a GPU whose calibration has not met the epilogue.
std::span<const WorkCost> known_as(const Platform& platform, const WorkCost& cost);

// Microseconds that work takes on the platform. Throws Error(input) naming the cost that its file lacks, and how to get
// it.
double cost_us(const Platform& platform, const WorkCost& cost);

}  // namespace stretto::sim
