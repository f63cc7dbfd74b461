#include <algorithm>
#include <map>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;

// Returns the collectives that gather a value: [value].
std::map<ValueId, Node> gathers_of(const LayerGraphs& graphs, std::initializer_list<const Nodes*> lists) {
  std::map<ValueId, Node> made;
  for (const Nodes* nodes : lists)
    for (const Node& node : *nodes)
      if (!node.operands.empty() && graphs.of(node.result()).is_gathered && node.operands.back().writes() &&
          !node.is_recomputed())
        made.emplace(node.result().value, node);
  return made;
}

struct Repeats {
  const char* what;
  Phase phase;
  bool right_before;  // the reader; otherwise before the data gradient of its layer
};

void regather(LayerGraphs& graphs, Nodes& block, const std::map<ValueId, Node>& made, const Repeats& repeats) {
  const auto is_made = [&](const Node& node) {
    return std::any_of(node.operands.begin(), node.operands.end(),
                       [&](const Operand& o) { return o.reads() && made.contains(o.slice.value); });
  };
  if (std::none_of(block.begin(), block.end(), is_made)) return;
  // [workspace] the value that the workspace holds. Only repeated nodes read what repeated nodes gather.
  std::map<std::string, ValueId> here, here_again;
  Nodes out = block;
  const auto at = [&](const auto& is_it) { return std::find_if(out.begin(), out.end(), is_it); };
  for (const Node& node : block) {
    for (const Operand& operand : node.operands)
      if (operand.writes()) {
        const std::string& name = graphs.of(operand.slice).name;
        here_again[name] = operand.slice.value;
        if (node.is_recomputed())
          here.erase(name);
        else
          here[name] = operand.slice.value;
      }
    for (const Operand& operand : node.operands) {
      const auto source = made.find(operand.slice.value);
      if (!operand.reads() || source == made.end()) continue;
      const std::string& name = graphs.of(operand.slice).name;
      const std::map<std::string, ValueId>& of_node = node.is_recomputed() ? here_again : here;
      if (const auto has = of_node.find(name); has != of_node.end() && has->second == operand.slice.value) continue;
      Node gather = source->second;
      gather.base = node.base;
      gather.what = repeats.what;
      gather.phase = repeats.phase;
      gather.module = node.module;
      gather.section = node.section;
      gather.concurrent_half = node.concurrent_half;
      gather.recomputed = Recomputed::none;
      gather.id = graphs.next++;
      const auto place = repeats.right_before || source->second.is_right_before
                             ? at([&](const Node& n) { return n.id == node.id; })
                             : at([&](const Node& n) {
                                 return n.base == node.base && !n.is_recomputed() &&
                                        (std::holds_alternative<Gemm>(n.work) || n.move == Move::gather);
                               });
      out.insert(place, std::move(gather));
      here[name] = here_again[name] = operand.slice.value;
    }
  }
  block = std::move(out);
}

}  // namespace

void regather(LayerGraphs& graphs, const Layout&) {
  const auto forward = gathers_of(graphs, {&graphs.forward});
  regather(graphs, graphs.forward, forward, {"all_gather", Phase::forward, true});
  regather(graphs, graphs.again, forward, {"all_gather", Phase::forward, true});
  regather(graphs, graphs.backward, gathers_of(graphs, {&graphs.forward, &graphs.gathers}),
           {"all_gather_wgrad", Phase::wgrad, false});
  regather(graphs, graphs.weights, gathers_of(graphs, {&graphs.forward, &graphs.backward, &graphs.gathers}),
           {"all_gather_wgrad", Phase::wgrad, true});
}

}  // namespace stretto::passes
