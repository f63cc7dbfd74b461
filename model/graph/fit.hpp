#pragma once
#include "model/graph/layout.hpp"

namespace stretto {

// Returns the work of a node on this rank: sizes follow from its operands, and heads from the cut. The inverse of
// operands_of(). The communicator of a collective is the caller's.
Work fit(const Node& node, const LayerGraphs& graphs, const Layout& layout);

}  // namespace stretto
