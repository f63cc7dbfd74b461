#pragma once
// Properties that every scenario must have, however its step is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

// Compares two steps of a layout with those of a single rank in fp64. Where all arithmetic is fp64: loss and gradients
// within 1e-10, parameters within 1e-8 (see layouts_test.cpp). In other precisions, or with gradients reduced in bf16,
// the distance is at most a few times that of a single rank in that precision. A larger distance is allowed up to a few
// times the distance that a single rank moves when its weights change in their last place, which is the effect of
// rounding in a model that magnifies it. Returns one line for each difference.
std::vector<std::string> differences_from_one_rank(const Scenario& scenario, const Trained& trained);

// Trains two steps and compares with a single rank, in low precision in fp64 as well. The schedule and its plan must
// verify; it must compute what the layout computes without overlap of buckets and messages; every rank must allocate
// the plan's bytes; the simulated step must be equal when no rank is folded away. Returns one line for each property
// that does not hold.
std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed);

}  // namespace stretto::testing
