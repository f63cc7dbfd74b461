#include <algorithm>
#include <iterator>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;

// The first node that writes the value writes it, and the next ones add. A sum in place keeps its mode.
void set_modes(Nodes& nodes, ValueId value) {
  bool is_written = false;
  for (Node& node : nodes)
    for (Operand& operand : node.operands) {
      if (!operand.writes() || operand.slice.value != value) continue;
      const auto* sum = std::get_if<Collective>(&node.work);
      if (sum == nullptr || sum->kind != CollectiveKind::all_reduce)
        operand.mode = is_written ? AccessMode::accumulate : AccessMode::write;
      is_written = true;
    }
}

}  // namespace

void settle(LayerGraphs& graphs, const Layout& layout) {
  const auto makes_term = [&](const Node& node) {  // of the sum: a product with a weight whose outputs are cut
    return std::holds_alternative<Gemm>(node.work) && node.phase == Phase::dgrad &&
           layout.cuts(graphs.of(node.operands[1].slice).rows.dim);
  };
  Nodes& nodes = graphs.backward;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].move != Move::sum) continue;
    const NodeId id = nodes[i].id;
    const ValueId value = nodes[i].result().value;
    const auto is_full = [&](const Node& n) {
      return n.phase == Phase::dgrad && n.move == Move::none && n.writes_value(value) && !makes_term(n) &&
             (std::holds_alternative<Gemm>(n.work) || std::holds_alternative<LayerNorm>(n.work) ||
              std::holds_alternative<RmsNorm>(n.work));
    };
    Nodes early;
    std::copy_if(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), std::back_inserter(early), is_full);
    if (early.empty()) continue;
    nodes.erase(std::remove_if(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), is_full),
                nodes.begin() + static_cast<std::ptrdiff_t>(i));
    const auto sum = std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.id == id; });
    nodes.insert(sum + 1, early.begin(), early.end());
    set_modes(nodes, value);
    i = 0;
  }
}

}  // namespace stretto::passes
