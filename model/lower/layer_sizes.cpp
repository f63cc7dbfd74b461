#include "model/lower/layer_sizes.hpp"

#include <algorithm>

#include "model/lower/graph_writer.hpp"

namespace stretto {
namespace {

double operations_of(const std::vector<Node>& nodes) {
  return double(std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return !n.operands.empty(); }));
}

}  // namespace

std::vector<LayerSize> layer_sizes(const Scenario& scenario) {
  Schedule schedule;
  schedule.compute_dtype = scenario.training.compute_dtype();
  const Groups groups = add_groups(schedule, scenario);
  const BlockShape shape = shape_of(scenario, groups);
  std::vector<LayerSize> kinds;
  std::vector<double> forward;
  for (const LayerGraphs& graphs : layer_graphs(schedule, shape)) {
    forward.push_back(operations_of(graphs.forward));
    kinds.push_back(
        {forward.back() + operations_of(graphs.backward) + operations_of(graphs.weights) + operations_of(graphs.again),
         double(std::count_if(graphs.values.begin(), graphs.values.end(),
                              [](const Value& value) { return value.is_kept; }))});
  }
  std::vector<LayerSize> sizes;
  for (std::int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const std::size_t kind = shape.kind_of_layer[static_cast<std::size_t>(layer)];
    sizes.push_back(kinds[kind]);
    if (shape.recompute.is_full(layer)) sizes.back().operations += forward[kind];
  }
  return sizes;
}

}  // namespace stretto
