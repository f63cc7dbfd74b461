#pragma once
// What must hold for every scenario, however its step is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

// Compares two steps of a layout with those of a single rank in fp64. Where all arithmetic is fp64: loss and gradients
// within 1e-10, parameters within 1e-8 (see layouts_test.cpp). In other precisions, or with gradients reduced in bf16:
// not further off than a few times what a single rank is in that precision. What is further off may be so by a few
// times as much as a single rank moves when its weights do in their last place: that is what rounding comes to in a
// model that magnifies it. One line for each difference.
std::vector<std::string> differences_from_one_rank(const Scenario& scenario, const Trained& trained);

// Trains two steps and compares with a single rank, in few bits in fp64 as well. The schedule and its plan verify; it
// computes what the same layout does when buckets and messages do not overlap; every rank allocates what the plan says;
// the simulated step is the same when no rank is folded away. One line for each that does not hold.
std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed);

}  // namespace stretto::testing
