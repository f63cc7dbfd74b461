#pragma once
// Scenarios drawn at random over everything that decides how a step is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto::testing {

// A layout of at most 16 ranks of a tiny model, over every key of a scenario that decides what is computed and how
// (keys_not_drawn() lists the others). It is drawn as the text of a scenario file, so that the reader's gates decide
// what is allowed; a refused draw is repeated.
struct RandomLayout {
  std::string toml;  // text that replays it
  Scenario scenario;
  std::vector<std::string> keys;  // keys that it sets: "training.lr"
  int refused = 0;                // refused draws before it
};
RandomLayout random_layout(std::uint64_t seed);
// That layout, but for repeated draws, of a model whose sizes are whole blocks of every scale, in a recipe of low
// precision drawn at random: to be verified and predicted, but not to be run.
RandomLayout random_layout_in_codes(std::uint64_t seed);

// Returns all keys that the reader of scenarios knows, "section.key", as the reader lists them.
std::vector<std::string> scenario_keys();
// Returns keys that no layout needs: they name files, machines and durations, or are other spellings.
std::vector<std::string> keys_not_drawn();

}  // namespace stretto::testing
