#include "model/passes/check.hpp"

#include <map>
#include <set>

namespace stretto::passes {
namespace {

class Check {
 public:
  Check(const LayerGraphs& graphs, const Layout& layout) : graphs_(graphs), layout_(layout) {}

  std::vector<std::string> run() {
    check(graphs_.forward, false);
    check(graphs_.again, true);
    check(graphs_.backward, true);
    if (layout_.weights_in_units) check(graphs_.weights, true);
    if (layout_.trains) check_gradients();
    return problems_;
  }

 private:
  void note(const Node& node, const Slice& slice, const char* problem) {
    problems_.push_back(name_of(node) + " " + problem + " " + graphs_.of(slice).name);
  }
  // A workspace, or one of its buffers.
  std::string place_of(const Value& value) const {
    return value.slots > 1 ? value.name + "." + std::to_string(value.slot) : value.name;
  }

  // `is_later`: values that are kept exist already.
  void check(const std::vector<Node>& nodes, bool is_later) {
    std::map<std::string, ValueId> here;  // [workspace] the value that it has
    for (const Node& node : nodes) {
      for (const Operand& operand : node.operands) {
        const Value& value = graphs_.of(operand.slice);
        const bool is_outside = value.kind == ValueKind::parameter || value.given != Given::none || value.is_of_weights;
        if (!operand.reads() || is_outside || (is_later && value.is_kept)) continue;
        const auto written = here.find(place_of(value));
        if (written == here.end())
          note(node, operand.slice, "reads what is not written before and not kept:");
        else if (written->second != operand.slice.value)
          note(node, operand.slice, "reads a workspace that another value has taken:");
      }
      for (const Operand& operand : node.operands) {
        if (operand.writes()) here[place_of(graphs_.of(operand.slice))] = operand.slice.value;
        const auto* collective = std::get_if<Collective>(&node.work);
        if (collective != nullptr && collective->kind != CollectiveKind::all_reduce &&
            operand.mode == AccessMode::accumulate)
          note(node, operand.slice, "adds to");
      }
    }
  }

  void check_gradients() {
    std::map<std::string, int> added;
    std::set<std::string> read;
    for (const Node& node : graphs_.forward)
      for (const Operand& operand : node.operands)
        if (graphs_.of(operand.slice).kind == ValueKind::parameter) read.insert(graphs_.of(operand.slice).name);
    for (const std::vector<Node>* nodes : {&graphs_.backward, &graphs_.weights})
      for (const Node& node : *nodes)
        for (const Operand& operand : node.operands)
          if (graphs_.of(operand.slice).kind == ValueKind::parameter && operand.writes() && node.slot <= 0)
            ++added[graphs_.of(operand.slice).name];
    for (const std::string& name : read)
      if (added[name] != 1)
        problems_.push_back("the gradient of " + name + " is added " + std::to_string(added[name]) + " times");
  }

  const LayerGraphs& graphs_;
  const Layout& layout_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> problems_of(const LayerGraphs& graphs, const Layout& layout) {
  return Check(graphs, layout).run();
}

}  // namespace stretto::passes
