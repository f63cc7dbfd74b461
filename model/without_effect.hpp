#pragma once
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// Returns a line for each key that the scenario sets to something other than its default and that has no effect there,
// because another key that it needs is not set (ScenarioKey::acts): "fp8_margin has no effect here: acts with delayed".
// Leaves out keys that only the profile sets.
std::vector<std::string> keys_without_effect(const Scenario& scenario);

}  // namespace stretto
