#pragma once
#include <vector>

#include "model/scenario/keys.hpp"

namespace stretto {

// Internal to keys.cpp: the rows of each section.
std::vector<ScenarioKey> model_keys();

}  // namespace stretto
