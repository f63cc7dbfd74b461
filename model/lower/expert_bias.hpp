#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/lower/groups.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The biases of experts (Experts::moe_router_enable_expert_bias). A rank has those of all layers of its stage, and adds
// up how many of its tokens go through each expert; after the last backward pass of a step the ranks that have other
// tokens sum these loads, and each moves its biases.
struct ExpertBias {
  struct OfStage {
    std::int64_t layers = 0;       // with experts
    TensorId loads = 0, bias = 0;  // [layers, experts]
  };
  std::vector<OfStage> stages;  // [program]; empty: experts have no biases
  Group tokens;                 // the ranks of a stage, which have other tokens
  double rate = 0;
};

// Adds storages, and to the state map the biases. Adds "router.bias" to the tensors by name: in the place of its
// gradient are the loads.
ExpertBias add_expert_bias(Schedule& schedule, const Scenario& scenario, ParameterTensors& tensors);

// Adds the operation that zeroes the loads of a stage to the block with which a step begins.
void zero_loads(Schedule& schedule, const ExpertBias& bias, std::size_t stage, LaneId compute, Block& block);
// Appends the sum of the loads and the move of the biases to the program of a stage.
void append_bias_update(Schedule& schedule, const ExpertBias& bias, std::size_t stage, LaneId compute);

}  // namespace stretto
