#pragma once
#include "model/lower/blocks.hpp"

namespace stretto {

// Returns whether passes know all that the blocks of this shape need. They do not know codes.
bool is_derived(const BlockShape& shape);

// As add_model_blocks(), from the forward graphs of layers (model/layers) by passes (model/passes).
ModelBlocks add_derived_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                               const View& loss, LaneId compute);

}  // namespace stretto
