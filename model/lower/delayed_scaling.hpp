#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "model/lower/blocks.hpp"

namespace stretto {

// Delayed scaling: the state of the tensors of a direction, X and W of the forward pass or dY of the backward pass. A
// model chunk has the tensors of its layers side by side, so that one all-reduce and one update serve all of them.
// Every expert of a rank has tensors of its own; ranks that share amaxes share those of their first experts, of their
// second ones and so on, whichever these are, as TransformerEngine's GroupedLinear does.
struct DelayedTensors {
  std::int64_t each = 0;                           // tensors of a layer
  TensorId amax = 0, scale = 0;                    // [1, each] of a layer
  TensorId amaxes = 0, histories = 0, scales = 0;  // of a chunk, families over the model's chunks
  BlockId update = 0;
};
struct DelayedScaling {
  DelayedTensors forward, backward;
};

// Returns the weights of a linear layer on a rank. Each weight has scales of its own.
inline std::int64_t matrices_of(const LinearLayer& linear) { return linear.is_grouped() ? linear.groups : 1; }

// Adds the tensors, and to the state map scales and histories: arrays "fp8.forward.scale", "fp8.forward.history" and
// the same of "backward".
DelayedScaling add_delayed_scaling(Schedule& schedule, const BlockShape& shape);

// Adds the blocks of both updates, called after the layers of a chunk in each pass: the all-reduce of amaxes over
// `shape.amax`, if there is such a group, and UpdateScale (TransformerEngine at d0067d0, pytorch/quantization.py:772).
void add_updates(Schedule& schedule, const BlockShape& shape, LaneId compute, DelayedScaling& scaling);

// Adds operations that zero the amaxes of a stage to the block with which a step begins.
void zero_amaxes(Schedule& schedule, const BlockShape& shape, const DelayedScaling& scaling, std::int64_t stage,
                 LaneId compute, Block& block);

}  // namespace stretto
