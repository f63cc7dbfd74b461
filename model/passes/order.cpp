#include <algorithm>
#include <functional>
#include <iterator>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;
using Test = std::function<bool(const Node&)>;

// Moves the nodes that `is_moved` accepts to where the first one that `is_anchor` accepts is: after it or before it.
void move(Nodes& nodes, const Test& is_moved, const Test& is_anchor, bool after) {
  Nodes moved, rest;
  std::partition_copy(nodes.begin(), nodes.end(), std::back_inserter(moved), std::back_inserter(rest), is_moved);
  auto at = std::find_if(rest.begin(), rest.end(), is_anchor);
  if (moved.empty() || at == rest.end()) return;
  if (after) ++at;
  rest.insert(at, std::make_move_iterator(moved.begin()), std::make_move_iterator(moved.end()));
  nodes = std::move(rest);
}

bool dispatches(const Node& node) {
  const auto* work = std::get_if<Collective>(&node.work);
  return work != nullptr && work->kind == CollectiveKind::dispatch;
}
// Sums of copies of tokens: results of the experts forward, and gradients of tokens backward.
bool sums_copies(const Node& node) {
  const auto* work = std::get_if<Permute>(&node.work);
  return work != nullptr && work->pass == Pass::backward && !work->apart;
}
bool is_weight_gradient(const Node& node) {
  const auto* work = std::get_if<GroupedGemm>(&node.work);
  return work != nullptr && work->pass == Pass::wgrad;
}

void order_shared(LayerGraphs& graphs, const Layout& layout) {
  const auto is_half = [](std::uint8_t half) { return [=](const Node& n) { return n.concurrent_half == half; }; };
  if (layout.experts.shared_is_concurrent) {
    move(graphs.forward, is_half(1), dispatches, true);
    move(graphs.forward, is_half(2), sums_copies, false);
    // Backward the second half is what comes before the gradients of the first one.
    bool is_before = true;
    std::vector<NodeId> second;
    for (const Node& node : graphs.backward) {
      is_before = is_before && node.concurrent_half != 1;
      if (is_before && node.concurrent_half == 2) second.push_back(node.id);
    }
    const auto is_second = [&](const Node& n) { return std::find(second.begin(), second.end(), n.id) != second.end(); };
    move(graphs.backward, is_second, dispatches, true);
    move(
        graphs.backward, [&](const Node& n) { return n.concurrent_half > 0 && !is_second(n); }, sums_copies, false);
    return;
  }
  move(
      graphs.backward, [](const Node& n) { return n.concurrent_half > 0; }, sums_copies, false);
}

// After the last exchange, or where there is none after the last gradient of rows.
void order_weights(Nodes& nodes) {
  Nodes weights, rest;
  std::partition_copy(nodes.begin(), nodes.end(), std::back_inserter(weights), std::back_inserter(rest),
                      is_weight_gradient);
  const auto is_combine = [](const Node& n) {
    const auto* work = std::get_if<Collective>(&n.work);
    return work != nullptr && work->kind == CollectiveKind::combine;
  };
  const auto is_product = [](const Node& n) { return std::holds_alternative<GroupedGemm>(n.work); };
  auto at = std::find_if(rest.rbegin(), rest.rend(), is_combine);
  if (at == rest.rend()) at = std::find_if(rest.rbegin(), rest.rend(), is_product);
  rest.insert(at.base(), std::make_move_iterator(weights.begin()), std::make_move_iterator(weights.end()));
  nodes = std::move(rest);
}

// Gradients of one name share a workspace, unless one is written while another is still read.
void separate_gradients(LayerGraphs& graphs) {
  for (const Node& node : graphs.backward) {
    const auto* work = std::get_if<GroupedGemm>(&node.work);
    if (work == nullptr || work->pass != Pass::dgrad) continue;
    Value& value = graphs.of(node.result());
    const auto reads_other = [&](const Node& n) {
      return std::any_of(n.operands.begin(), n.operands.end(), [&](const Operand& o) {
        return o.reads() && o.slice.value != node.result().value && graphs.of(o.slice).name == value.name;
      });
    };
    const auto written =
        std::find_if(graphs.backward.begin(), graphs.backward.end(), [&](const Node& n) { return n.id == node.id; });
    if (std::any_of(written + 1, graphs.backward.end(), reads_other)) value.name = "d_" + node.base + ".in";
  }
}

}  // namespace

void order(LayerGraphs& graphs, const Layout& layout) {
  order_shared(graphs, layout);
  if (std::none_of(graphs.backward.begin(), graphs.backward.end(), is_weight_gradient)) return;
  if (layout.experts.weights_last || layout.weights_apart) order_weights(graphs.backward);
  // Gradients that come as codes are in places of their own.
  if (!(layout.codes.rules.sends_gradients && layout.experts.exchanges)) separate_gradients(graphs);
}

}  // namespace stretto::passes
