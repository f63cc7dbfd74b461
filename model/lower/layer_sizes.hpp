#pragma once
#include <vector>

#include "model/scenario.hpp"

namespace stretto {

// The size of a layer in a schedule without overlap modes: operations of one micro-batch in both passes, repeated ones
// included, and values that a backward pass reads later.
struct LayerSize {
  double operations = 0, kept_values = 0;
};
// Returns [layer] the sizes. They are counted in the graphs from which the blocks of a layer are made.
std::vector<LayerSize> layer_sizes(const Scenario& scenario);

}  // namespace stretto
