#pragma once
#include <string>
#include <vector>

#include "model/graph/layout.hpp"

namespace stretto::passes {

// Returns what is wrong with derived graphs; empty: nothing.
//   a node reads what no node before it has written, and what is not saved for it
//   a workspace has been taken by another value before its last reader
//   a parameter's gradient is not added exactly once
//   a collective adds to what it should write
// derive() calls it in builds with checked containers, and tests do for every layer.
std::vector<std::string> problems_of(const LayerGraphs& graphs, const Layout& layout);

}  // namespace stretto::passes
