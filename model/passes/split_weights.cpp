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

// The addition to the residual stream at the end of a section.
const Node& addition_of(const LayerGraphs& graphs, std::uint8_t section) {
  return *std::find_if(graphs.forward.begin(), graphs.forward.end(),
                       [&](const Node& n) { return n.adds_to_stream && n.section == section; });
}

// The next layer's backward pass, which begins with the last section, begins before this layer's weight gradients.
bool alternates(const LayerGraphs& graphs, const Layout& layout, std::uint8_t section) {
  return !layout.weights_in_units && section > 0 && section == graphs.forward.back().section;
}

// The gradient of what is added to the stream lives longer than the next section's.
void name_gradients_of_terms(LayerGraphs& graphs, const Layout& layout) {
  for (const Node& addition : graphs.forward) {
    if (!std::holds_alternative<Dropout>(addition.work) || !addition.adds_to_stream) continue;
    for (Value& value : graphs.values)
      if (value.gradient_of == addition.operands[1].slice.value && value.given == Given::none) {
        value.name = "d_" + addition.term;
        value.is_kept = layout.weights_in_units;
        value.alternates = alternates(graphs, layout, addition.section);
      }
  }
}

}  // namespace

// One value for all sections: each copies it for itself.
void keep_gradient(LayerGraphs& graphs, const Layout& layout, const Node& reader, const Slice& source) {
  const Node& addition = addition_of(graphs, reader.section);
  Value copy = graphs.of(source);
  copy.name = "d_" + addition.term;
  copy.kind = ValueKind::activation;
  copy.given = Given::none;
  copy.gradient_of = {};
  copy.alternates = alternates(graphs, layout, reader.section);
  const Slice kept = graphs.whole(graphs.add(std::move(copy)));
  Node keep;
  keep.work = Cast{};
  keep.operands = {reads(source), writes(kept)};
  keep.base = addition.term;
  keep.what = "keep_dy";
  keep.phase = Phase::dgrad;
  keep.module = addition.module;
  keep.section = reader.section;
  keep.id = graphs.next++;
  for (Node& other : graphs.backward)
    for (Operand& operand : other.operands)
      if (other.section == keep.section && operand.mode == AccessMode::read && operand.slice.value == source.value)
        operand.slice.value = kept.value;
  const auto first = std::find_if(graphs.backward.begin(), graphs.backward.end(),
                                  [&](const Node& n) { return n.section == keep.section; });
  graphs.backward.insert(first, std::move(keep));
}

void split_weights(LayerGraphs& graphs, const Layout& layout) {
  if (!layout.weights_apart) return;
  name_gradients_of_terms(graphs, layout);
  for (const Node& node : graphs.backward) {
    if (!node.is_deferrable) continue;
    const Slice source = own_part(graphs, node.operands[0].slice);
    if (graphs.of(source).given == Given::stream_gradient) {
      keep_gradient(graphs, layout, node, source);
      return split_weights(graphs, layout);
    }
  }
  const auto late = std::stable_partition(graphs.backward.begin(), graphs.backward.end(),
                                          [](const Node& n) { return !n.is_deferrable; });
  graphs.weights.assign(std::make_move_iterator(late), std::make_move_iterator(graphs.backward.end()));
  graphs.backward.erase(late, graphs.backward.end());
  for (Node& node : graphs.weights) node.concurrent_half = 0;  // no exchange is left to run with
}

void freeze(LayerGraphs& graphs, const Layout& layout) {
  if (layout.trains) return;
  for (std::vector<Node>* nodes : {&graphs.backward, &graphs.weights})
    std::erase_if(*nodes, [](const Node& n) { return n.phase == Phase::wgrad; });
}

}  // namespace stretto::passes
