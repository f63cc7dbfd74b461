#include <algorithm>
#include <iterator>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

// Returns the value that a weight gradient reads as dy: what a rank has of it, where it is gathered.
Slice own_part(const LayerGraphs& graphs, const Slice& dy) {
  for (const Node& node : graphs.backward)
    if (node.move == Move::gather && node.result() == dy) return node.operands[0].slice;
  return dy;
}

// Returns whether an addition to the residual stream adds the value.
bool adds_to_stream(const LayerGraphs& graphs, const std::optional<ValueId>& value) {
  return value && std::any_of(graphs.forward.begin(), graphs.forward.end(),
                              [&](const Node& n) { return n.adds_to_stream && n.operands[1].slice.value == *value; });
}

}  // namespace

void split_weights(LayerGraphs& graphs, const Layout& layout) {
  if (!layout.weights_apart) return;
  for (const Node& node : graphs.backward) {
    if (!node.is_deferrable) continue;
    const Slice source = own_part(graphs, node.operands[0].slice);
    Value& value = graphs.of(source);
    if (value.given == Given::stream_gradient) {
      // One value for all sections: each copies it for itself.
      Value copy = value;
      copy.name = "d_" + node.base;
      copy.kind = ValueKind::activation;
      copy.given = Given::none;
      copy.gradient_of = {};
      const Slice kept = graphs.whole(graphs.add(std::move(copy)));
      Node keep;
      keep.work = Cast{};
      keep.operands = {reads(source), writes(kept)};
      keep.base = node.base;
      keep.what = "keep_dy";
      keep.phase = Phase::dgrad;
      keep.module = node.module;
      keep.section = node.section;
      keep.id = graphs.next++;
      for (Node& reader : graphs.backward)
        for (Operand& operand : reader.operands)
          if (reader.section == keep.section && operand.mode == AccessMode::read && operand.slice.value == source.value)
            operand.slice.value = kept.value;
      const auto first = std::find_if(graphs.backward.begin(), graphs.backward.end(),
                                      [&](const Node& n) { return n.section == keep.section; });
      graphs.backward.insert(first, std::move(keep));
      return split_weights(graphs, layout);
    }
    // The gradient of what is added to the stream lives longer than the next section's.
    if (adds_to_stream(graphs, value.gradient_of)) value.name = "d_" + node.base;
  }
  const auto late = std::stable_partition(graphs.backward.begin(), graphs.backward.end(),
                                          [](const Node& n) { return !n.is_deferrable; });
  graphs.weights.assign(std::make_move_iterator(late), std::make_move_iterator(graphs.backward.end()));
  graphs.backward.erase(late, graphs.backward.end());
}

void freeze(LayerGraphs& graphs, const Layout& layout) {
  if (layout.trains) return;
  for (std::vector<Node>* nodes : {&graphs.backward, &graphs.weights})
    std::erase_if(*nodes, [](const Node& n) { return n.phase == Phase::wgrad; });
}

}  // namespace stretto::passes
