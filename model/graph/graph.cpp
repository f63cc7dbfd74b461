#include "model/graph/graph.hpp"

#include <algorithm>

namespace stretto {

bool Node::writes_value(ValueId value) const {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& o) { return o.writes() && o.slice.value == value; });
}
bool Node::reads_value(ValueId value) const {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& o) { return o.reads() && o.slice.value == value; });
}

std::string name_of(const Node& node) {
  return node.base + (node.what.empty() ? "" : "." + node.what) + node.suffix +
         (node.slot < 0 ? "" : ".slot" + std::to_string(node.slot)) + (node.is_recomputed() ? ".recompute" : "");
}

}  // namespace stretto
