#pragma once
#include "model/scenario.hpp"
#include "sweep/family.hpp"

namespace stretto::sweep {

// Closed forms that no step of a scenario falls below, from the costs of its family. They need no schedule.

// Returns a time in milliseconds. A stage has m micro-batches of all its chunks, each chunk as long as its layers take
// in a row, except that what is between its last layer and the next chunk may be hidden by another micro-batch.
// Before a stage begins, a micro-batch goes forward through the stages before it; after it ends, the gradient goes back
// through them, unless weight gradients are passes of their own (1F1B: Narayanan et al., arXiv 2104.04473, 2.2). A step
// whose ranks wait for the norm of all gradients is no shorter than all of that; other steps may begin before the one
// before has ended.
double least_step_ms(const Scenario& scenario, const TimeFamily& family);

// Returns bytes of a device: the state of the fuller one of the first and the last stage, and the activations of all
// layers and micro-batches that it holds at once (interleaved 1F1B, arXiv 2104.04473: 2 (p − s − 1) + (v − 1) p + 1
// chunks on stage s).
double least_bytes(const Scenario& scenario, const MemoryFamily& family);

// Elements of a model's parameters: of all layers but experts, and of all experts.
struct ModelElements {
  double dense = 0, of_experts = 0;
};
ModelElements elements_of(const Transformer& model);
// Returns bytes of a device below that: the parameters, gradients and optimizer state of a mean stage, with the least
// bytes that any profile gives them. Needs no family.
double least_state_bytes(const Scenario& scenario, const ModelElements& elements);

}  // namespace stretto::sweep
