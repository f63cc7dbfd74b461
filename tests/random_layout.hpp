#pragma once
// Scenarios drawn at random over everything that decides how a step is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::testing {

// At most 16 ranks of a tiny model: every key of a scenario that decides what is computed and how (keys_not_drawn()
// lists the others). It is drawn as the text of a scenario file, so that the reader's gates decide what is allowed;
// what they refuse is drawn again.
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

}  // namespace stretto::testing
