#pragma once
#include <vector>

#include "model/scenario/keys.hpp"

namespace stretto {

// Internal to model/scenario: keys.cpp concatenates the keys of all sections.

// Returns the bounds of a count: 1 ≤ value ≤ max.
constexpr Bounds up_to(std::int64_t max) { return {.min = 1, .max = double(max)}; }

const char* name_of(Network network);  // "links", "nccl"

// Return the keys of one section of a scenario file. Their ScenarioKey::section is empty; keys.cpp sets it.
std::vector<ScenarioKey> model_keys();
std::vector<ScenarioKey> cluster_keys();
std::vector<ScenarioKey> parallel_keys();
std::vector<ScenarioKey> overlap_keys();
std::vector<ScenarioKey> training_keys();
std::vector<ScenarioKey> compare_keys();
std::vector<ScenarioKey> low_precision_keys();  // those of [training] about low precision
std::vector<ScenarioKey> optimizer_keys();      // those of [training] about types of the optimizer's numbers

}  // namespace stretto
