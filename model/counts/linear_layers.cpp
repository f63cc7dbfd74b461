#include "model/linear_layers.hpp"

#include <algorithm>
#include <optional>

#include "base/values_of.hpp"
#include "model/counts/layer_order.hpp"
#include "model/layers/layers.hpp"

namespace stretto {
namespace {

std::optional<QuantisedLayer> quantised(const Node& node) {
  for (const QuantisedLayer layer : values_of<QuantisedLayer>())
    if (node.base == name_of(layer)) return layer;
  return {};
}

// Returns the linear layer of a product y = x · wᵀ.
LinearLayer linear_layer(QuantisedLayer name, const Node& node, const LayerGraphs& graphs, const LinearCuts& cuts) {
  const Slice &x = node.operands[0].slice, &y = node.result();
  const Value& weight = graphs.of(node.operands[1].slice);
  if (std::holds_alternative<GroupedGemm>(node.work)) {
    const auto cols = [&](const Slice& slice) {
      return slice.cols / (graphs.of(slice).cols.dim == Dim::expert_width ? cuts.expert_tp : 1);
    };
    return {name, LinearCut::none, cols(y), cols(x), cuts.experts};
  }
  if (weight.rows.dim != Dim::none) return {name, LinearCut::outputs, y.cols / cuts.tp, x.cols};
  if (weight.cols.dim != Dim::none) return {name, LinearCut::inputs, y.cols, x.cols / cuts.tp};
  return {name, LinearCut::none, y.cols, x.cols};
}

}  // namespace

bool LinearLayer::is_in(const LayerSpec& spec) const { return std::count(kinds.begin(), kinds.end(), spec) > 0; }

std::vector<LinearLayer> linear_layers(const Transformer& model, const LinearCuts& cuts) {
  std::vector<LayerSpec> kinds = model.layer_kinds();
  std::sort(kinds.begin(), kinds.end());
  std::vector<LinearLayer> all;
  for (const LayerSpec& kind : kinds) {
    LayerGraphs graphs;
    const TokenData data;
    Builder builder(graphs, model, data);
    layers::layer(builder, kind);
    for (const Node* node : in_order_of_branches(graphs)) {
      const auto name = quantised(*node);
      if (!name || !(node->is_linear || std::holds_alternative<GroupedGemm>(node->work))) continue;
      auto known = std::find_if(all.begin(), all.end(), [&](const LinearLayer& one) { return one.layer == *name; });
      if (known == all.end()) known = all.insert(all.end(), linear_layer(*name, *node, graphs, cuts));
      known->kinds.push_back(kind);
    }
  }
  return all;
}

}  // namespace stretto
