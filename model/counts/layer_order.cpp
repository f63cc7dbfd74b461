#include "model/counts/layer_order.hpp"

#include <algorithm>

namespace stretto {
namespace {

// Sorts each run of nodes that are of branches.
void join_branches(std::vector<const Node*>& nodes) {
  const auto is_of_branch = [](const Node* node) { return node->branch > 0; };
  for (auto begin = nodes.begin(); begin != nodes.end();) {
    begin = std::find_if(begin, nodes.end(), is_of_branch);
    const auto end = std::find_if_not(begin, nodes.end(), is_of_branch);
    std::stable_sort(begin, end, [](const Node* a, const Node* b) { return a->branch < b->branch; });
    begin = end;
  }
}

std::vector<const Node*> nodes_of(const LayerGraphs& graphs) {
  std::vector<const Node*> nodes;
  for (const Node& node : graphs.forward) nodes.push_back(&node);
  return nodes;
}

}  // namespace

std::vector<const Node*> in_order_of_branches(const LayerGraphs& graphs) {
  std::vector<const Node*> nodes = nodes_of(graphs);
  join_branches(nodes);
  return nodes;
}

std::vector<const Node*> in_order_of_modules(const LayerGraphs& graphs) {
  std::vector<const Node*> nodes = nodes_of(graphs);
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->module < b->module; });
  join_branches(nodes);
  return nodes;
}

}  // namespace stretto
