#pragma once
#include <vector>

#include "model/scenario/keys.hpp"

namespace stretto {

// Internal to keys.cpp and the rows of each section.
constexpr Bounds up_to(std::int64_t max) { return {.min = 1, .max = double(max)}; }

std::vector<ScenarioKey> model_keys();
std::vector<ScenarioKey> parallel_keys();
std::vector<ScenarioKey> overlap_keys();
std::vector<ScenarioKey> training_keys();

}  // namespace stretto
