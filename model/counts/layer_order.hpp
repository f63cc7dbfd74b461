#pragma once
#include <vector>

#include "model/graph/graph.hpp"

namespace stretto {

// Returns the forward nodes of a graph. Nodes of a branch stay together, in the order of the branches: with latent
// attention all that makes the queries, and then all that makes keys and values.
std::vector<const Node*> in_order_of_branches(const LayerGraphs& graphs);
// Returns them module after module, as frameworks register parameters: router, experts, shared expert.
std::vector<const Node*> in_order_of_modules(const LayerGraphs& graphs);

}  // namespace stretto
