#pragma once
// Scenarios drawn at random over everything that decides how a step is cut, and what must hold for each of them.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::testing {

// At most 16 ranks of a tiny model in fp64: every axis, every key that splits layers unevenly, both styles and mixtures
// of them, recomputation, all overlap knobs. It is drawn as the text of a scenario file, so that the reader's gates
// decide what is allowed; what they refuse is drawn again.
struct RandomLayout {
  std::string toml;  // replays it
  Scenario scenario;
  int refused = 0;  // draws before it
};
RandomLayout random_layout(std::uint64_t seed);

// Trains two steps and compares with a single rank: loss and gradients within 1e-10, parameters within 1e-8 (see
// layouts_test.cpp). The schedule and its plan verify; it computes what the same layout does when buckets and messages
// do not overlap; every rank allocates what the plan says; the simulated step is the same when no rank is folded away.
// One line for each that does not hold.
std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed);

}  // namespace stretto::testing
