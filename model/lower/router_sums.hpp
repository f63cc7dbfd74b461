#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/lower/blocks.hpp"
#include "model/lower/groups.hpp"
#include "model/scenario.hpp"

namespace stretto {

// Counts of tokens by expert that routers add up over the micro-batches of a step. A rank has a row of them for each
// layer of its stage that has experts.
//
// loads: how many of the rank's tokens go through each expert, with Experts::moe_router_enable_expert_bias. After the
// last backward pass of a step the ranks that have other tokens sum the loads, and each moves its biases.
// tally: how many tokens of all replicas have an expert among the best, with LoadBalancing::global_aux_loss.
struct RouterSums {
  struct OfStage {
    std::int64_t layers = 0;                  // with experts
    TensorId loads = 0, bias = 0, tally = 0;  // [layers, experts]
  };
  bool has_biases = false, has_tally = false;
  std::vector<OfStage> stages;  // [program]; empty: neither
  Group tokens;                 // the ranks of a stage, which have other tokens
  double rate = 0;              // of biases
};

// Adds storages, and to the state map the biases. Adds "router.bias" to the tensors by name: in the place of its
// gradient are the loads. Adds "router.tally" to the gradients.
RouterSums add_router_sums(Schedule& schedule, const Scenario& scenario, ParameterTensors& tensors);

// Adds the operations that zero the sums of a stage to the block with which a step begins.
void zero_router_sums(Schedule& schedule, const RouterSums& sums, std::size_t stage, LaneId compute, Block& block);
// Appends the sum of the loads and the move of the biases to the program of a stage.
void append_bias_update(Schedule& schedule, const RouterSums& sums, std::size_t stage, LaneId compute);

}  // namespace stretto
