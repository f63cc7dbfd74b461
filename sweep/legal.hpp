#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sim/platform.hpp"
#include "sweep/space.hpp"

namespace stretto::sweep {

// The meaning of "legal": every value that may be legal for a scenario's model. Which combinations are is decided by
// the scenario's reader and its gates.

// Returns the values of a key in full on `gpus` GPUs; empty where only the user can list them.
std::vector<std::string> legal_values(const std::string& key, const Scenario& scenario, const sim::Platform& platform,
                                      std::int64_t gpus);

// Returns the switches of [overlap] that are knobs of modes (model/overlap/mode.hpp) and act in some layout of these
// axes: full names, in the order of the modes.
std::vector<std::string> legal_switches(const std::vector<Axis>& axes, const Scenario& scenario);

// Returns whether a switch, by its full name, is the knob of a mode that cannot act in the layout.
bool is_idle(const std::string& key, const Parallel& parallel);

// Returns the layers that pipeline stages share; the embedding and the head may count as one each.
std::int64_t split_layers(const Scenario& scenario);

}  // namespace stretto::sweep
