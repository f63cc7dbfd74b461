#pragma once
// What must hold for every scenario, however its step is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::testing {

// Trains two steps and compares with a single rank in fp64. Where all arithmetic is fp64: loss and gradients within
// 1e-10, parameters within 1e-8 (see layouts_test.cpp). In other precisions, or with gradients reduced in bf16: not
// further off than a few times what a single rank is in that precision. The schedule and its plan verify; it computes
// what the same layout does when buckets and messages do not overlap; every rank allocates what the plan says; the
// simulated step is the same when no rank is folded away. One line for each that does not hold.
std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed);

}  // namespace stretto::testing
