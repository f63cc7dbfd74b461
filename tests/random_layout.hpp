#pragma once
// Scenarios drawn at random over everything that decides how a step is cut, and what must hold for each of them.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::testing {

// At most 16 ranks of a tiny model: every key of a scenario that decides what is computed and how (not_drawn() lists
// the others). It is drawn as the text of a scenario file, so that the reader's gates decide what is allowed; what they
// refuse is drawn again.
struct RandomLayout {
  std::string toml;  // replays it
  Scenario scenario;
  std::vector<std::string> keys;  // "training.lr": that it sets
  int refused = 0;                // draws before it
};
RandomLayout random_layout(std::uint64_t seed);

// All keys that the reader of scenarios knows, "section.key", as it names them itself.
std::vector<std::string> scenario_keys();
// Keys that no layout needs: they name files, machines and durations, or are other spellings.
std::vector<std::string> keys_not_drawn();

// Trains two steps and compares with a single rank in fp64. Where all arithmetic is fp64: loss and gradients within
// 1e-10, parameters within 1e-8 (see layouts_test.cpp). In other precisions, or with gradients reduced in bf16: not
// further off than a few times what a single rank is in that precision. The schedule and its plan verify; it computes
// what the same layout does when buckets and messages do not overlap; every rank allocates what the plan says; the
// simulated step is the same when no rank is folded away. One line for each that does not hold.
std::vector<std::string> broken_properties(const Scenario& scenario, bool threaded, std::uint64_t seed);

}  // namespace stretto::testing
