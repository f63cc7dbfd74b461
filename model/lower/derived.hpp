#pragma once
#include "model/lower/blocks.hpp"

namespace stretto {

struct DelayedScaling;

// Makes the blocks as add_model_blocks() says, from the forward graphs of layers (model/layers) by passes
// (model/passes).
ModelBlocks add_derived_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                               const View& loss, LaneId compute, DelayedScaling* delayed);

}  // namespace stretto
