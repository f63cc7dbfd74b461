#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "model/passes/passes.hpp"

namespace stretto::passes {
namespace {

using Nodes = std::vector<Node>;
using Test = std::function<bool(const Node&)>;

bool is_in(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::vector<ValueId> written_by(const Nodes& nodes) {
  std::vector<ValueId> values;
  for (const Node& node : nodes)
    for (const Operand& operand : node.operands)
      if (operand.writes()) values.push_back(operand.slice.value);
  return values;
}

// Returns the values that the backward pass and weight gradients read, but for those that they gather themselves.
std::vector<ValueId> read_backward(const LayerGraphs& graphs) {
  std::vector<ValueId> values;
  for (const Nodes* nodes : {&graphs.backward, &graphs.weights})
    for (const Node& node : *nodes)
      for (const Operand& operand : node.operands)
        if (operand.reads() && !graphs.of(operand.slice).is_gathered) values.push_back(operand.slice.value);
  return values;
}

bool writes_output(const LayerGraphs& graphs, const Node& node) {
  return std::any_of(node.operands.begin(), node.operands.end(),
                     [&](const Operand& o) { return o.writes() && graphs.of(o.slice).given == Given::output; });
}

// The place of what is repeated among the backward nodes.
enum class Before : std::uint8_t {
  section,   // all others of its section
  rows,      // those of the experts' rows
  gradient,  // the first gradient of a repeated node
};

// A part of a layer that `selective` repeats.
struct Part {
  Recompute::Module module;
  Recomputed function;
  Test is_in;
  bool keeps_result;  // a checkpointed function's result is kept, because others have saved it (arXiv 2205.05198, 34
                      // sbh)
  bool is_pruned;     // only what the backward pass reads is repeated
  Before before = Before::section;
};

Nodes picked(const Nodes& nodes, const std::vector<bool>& which) {
  Nodes taken;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (which[i]) taken.push_back(nodes[i]);
  return taken;
}

Nodes repeated(LayerGraphs& graphs, const Nodes& nodes, Recomputed function) {
  Nodes again;
  for (Node node : nodes) {
    if (node.operands.empty()) continue;
    // A norm that is repeated with what follows is a function of its own.
    node.recomputed = function == Recomputed::mlp && node.module == Module::mlp_norm ? Recomputed::layernorm : function;
    node.id = graphs.next++;
    again.push_back(std::move(node));
  }
  return again;
}

// Results that a repeated function leaves and that nobody reads get places of the backward pass, which it has not
// filled yet: those of the gradient of the function's input.
void place_in_backward(LayerGraphs& graphs, Nodes& again) {
  const auto all = std::find_if(graphs.backward.begin(), graphs.backward.end(), [](const Node& n) {
    return n.concurrent_half == 1 && n.phase == Phase::dgrad && std::holds_alternative<Gemm>(n.work);
  });
  if (all == graphs.backward.end()) return;
  const auto sum = std::find_if(graphs.backward.begin(), graphs.backward.end(), [&](const Node& n) {
    return n.move == Move::sum && n.operands.front().slice == all->result();
  });
  const std::vector<ValueId> read = read_backward(graphs);
  std::map<ValueId, ValueId> placed;
  for (Node& node : again)
    for (Operand& operand : node.operands) {
      const ValueId id = operand.slice.value;
      const Value value = graphs.values[id];
      if (placed.contains(id)) {
        operand.slice.value = placed[id];
      } else if (node.concurrent_half == 2 && operand.writes() && !is_in(read, id)) {
        const bool is_whole = value.is_whole || sum == graphs.backward.end();
        Value own = value;
        own.name = graphs.of(is_whole ? all->result() : sum->result()).name;
        operand.slice.value = placed[id] = graphs.add(std::move(own));
      }
    }
}

void repeat_part(LayerGraphs& graphs, const Layout& layout, const Part& part, std::uint8_t section) {
  const auto is_of_part = [&](const Node& n) { return n.section == section && part.is_in(n); };
  Nodes nodes;
  std::copy_if(graphs.forward.begin(), graphs.forward.end(), std::back_inserter(nodes), is_of_part);
  if (nodes.empty()) return;
  std::vector<NodeId> repeats;
  for (const Node& node : nodes) repeats.push_back(node.id);
  const bool is_pruned = part.is_pruned && !layout.recompute.whole_layers;
  if (is_pruned) nodes = picked(nodes, needed(nodes, read_backward(graphs)));
  for (const Node& node : nodes)
    for (const Operand& operand : node.operands) {
      const ValueId value = operand.slice.value;
      const bool is_result = std::any_of(graphs.forward.begin(), graphs.forward.end(),
                                         [&](const Node& n) { return !is_of_part(n) && n.reads_value(value); });
      if (operand.writes() && !(part.keeps_result && is_result) && !graphs.values[value].is_shared)
        graphs.values[value].is_again = true;
    }
  Nodes again = repeated(graphs, nodes, part.function);
  if (part.is_pruned) place_in_backward(graphs, again);
  // Parts of one section are repeated in the order of the list.
  const auto first = std::find_if(graphs.backward.begin(), graphs.backward.end(), [&](const Node& n) {
    if (n.section != section || n.is_recomputed()) return false;
    switch (part.before) {
      case Before::section:
        return true;
      case Before::rows:
        return n.module == Module::experts;
      case Before::gradient:
        break;
    }
    return std::find(repeats.begin(), repeats.end(), n.of) != repeats.end() ||
           std::any_of(nodes.begin(), nodes.end(), [&](const Node& made) {
             return std::any_of(made.operands.begin(), made.operands.end(),
                                [&](const Operand& o) { return o.writes() && n.reads_value(o.slice.value); });
           });
  });
  graphs.backward.insert(first, std::make_move_iterator(again.begin()), std::make_move_iterator(again.end()));
}

// Every second product is kept: q, k, v with all of attention between its products, and the gate. With tensor
// parallelism the sum after the section's last product is kept, so that the product is not repeated.
void repeat_operations(LayerGraphs& graphs, const Layout& layout) {
  const Nodes& forward = graphs.forward;
  Nodes kept;
  for (std::size_t first = 0; first < forward.size();) {
    std::size_t end = first;
    while (end < forward.size() && forward[end].section == forward[first].section) ++end;
    std::size_t begin = first;
    while (begin < end && !forward[begin].is_linear) ++begin;
    std::size_t last = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (forward[i].function == Recomputed::core_attn) last = i;
    for (std::size_t i = begin; i < end && i <= last; ++i) kept.push_back(forward[i]);
    for (std::size_t i = first; i < end; ++i)
      if (forward[i].adds_to_stream && layout.tp > 1) kept.push_back(forward[i]);
    first = end;
  }
  const std::vector<ValueId> values = written_by(kept);
  std::vector<ValueId> wanted = read_backward(graphs);
  std::erase_if(wanted, [&](ValueId value) { return is_in(values, value); });
  const Nodes nodes = picked(forward, needed(forward, wanted, values));
  for (const ValueId value : written_by(nodes)) graphs.values[value].is_again = true;
  graphs.again = repeated(graphs, nodes, Recomputed::layer);
}

}  // namespace

std::vector<ValueId> live_into(const std::vector<Node>& nodes) {
  std::vector<ValueId> made, live;
  for (const Node& node : nodes) {
    for (const Operand& operand : node.operands)
      if (operand.reads() && !is_in(made, operand.slice.value)) live.push_back(operand.slice.value);
    for (const Operand& operand : node.operands)
      if (operand.writes()) made.push_back(operand.slice.value);
  }
  return live;
}

std::vector<bool> needed(const std::vector<Node>& nodes, std::vector<ValueId> wanted,
                         const std::vector<ValueId>& kept) {
  std::vector<bool> taken(nodes.size(), false);
  for (std::size_t i = nodes.size(); i-- > 0;) {
    taken[i] = std::any_of(nodes[i].operands.begin(), nodes[i].operands.end(),
                           [&](const Operand& o) { return o.writes() && is_in(wanted, o.slice.value); });
    if (!taken[i]) continue;
    for (const Operand& operand : nodes[i].operands)
      if (operand.reads() && !is_in(kept, operand.slice.value)) wanted.push_back(operand.slice.value);
  }
  return taken;
}

void halve_gates(LayerGraphs& graphs, const Layout& layout) {
  if (layout.recompute.granularity != Recompute::Granularity::selective_op) return;
  Nodes forward;
  std::vector<std::pair<ValueId, std::pair<Slice, Slice>>> halved;
  for (const Node& node : graphs.forward) {
    const bool is_gated =
        node.is_linear && std::any_of(graphs.forward.begin(), graphs.forward.end(), [&](const Node& n) {
          const auto* work = std::get_if<Elementwise>(&n.work);
          return work != nullptr && work->fn == ElementwiseFn::swiglu && n.reads_value(node.result().value);
        });
    if (!is_gated) {
      forward.push_back(node);
      continue;
    }
    const auto half_of = [&](const char* name, TensorRole role) {
      Value half = graphs.of(node.result());
      half.name = std::string(name) + ".out";
      half.cols.size /= 2;
      half.role = role;
      return graphs.whole(graphs.add(std::move(half)));
    };
    const Slice gate = half_of("gate", TensorRole::gate_out), up = half_of("up", TensorRole::none);
    halved.emplace_back(node.result().value, std::pair{gate, up});
    for (const Slice& half : {gate, up}) {
      Node product = node;
      const std::int64_t first = half == gate ? 0 : half.cols;
      product.what = half == gate ? "gate.fprop" : "up.fprop";
      product.id = graphs.next++;
      product.operands[1].slice.first_row = first;
      product.operands[1].slice.rows = half.cols;
      if (std::get<Gemm>(product.work).bias) {
        product.operands[2].slice.first = first;
        product.operands[2].slice.cols = half.cols;
      }
      product.operands.back().slice = half;
      forward.push_back(std::move(product));
    }
  }
  graphs.forward = std::move(forward);
  for (Nodes* nodes : {&graphs.forward, &graphs.backward})
    for (Node& node : *nodes)
      for (Operand& operand : node.operands)
        for (const auto& [value, halves] : halved)
          if (operand.slice.value == value && operand.mode == AccessMode::read)
            operand.slice = operand.slice.first == 0 ? halves.first : halves.second;
}

void recompute(LayerGraphs& graphs, const Layout& layout) {
  if (layout.recompute.granularity == Recompute::Granularity::selective_op) return repeat_operations(graphs, layout);
  using enum Recompute::Module;
  const auto is_of = [](Recomputed function) { return [=](const Node& n) { return n.function == function; }; };
  const auto is_of_experts = [](const Node& n) {
    return n.module == Module::router || n.module == Module::token_sort || n.module == Module::experts ||
           n.module == Module::shared_experts;
  };
  const std::vector<Part> parts = {
      {layernorm, Recomputed::layernorm, is_of(Recomputed::layernorm), false, false},
      {mla_up_proj, Recomputed::mla_up_proj, is_of(Recomputed::mla_up_proj), false, false},
      {core_attn, Recomputed::core_attn, is_of(Recomputed::core_attn), true, false},
      {mlp, Recomputed::mlp, [&](const Node& n) { return n.function == Recomputed::mlp && !writes_output(graphs, n); },
       false, true},
      {moe, Recomputed::moe, is_of_experts, false, true, Before::rows},
      {moe_act, Recomputed::moe_act, is_of(Recomputed::moe_act), false, false, Before::gradient},
      {shared_experts, Recomputed::shared_experts, is_of(Recomputed::shared_experts), false, true, Before::gradient}};
  for (const Part& part : parts)
    for (const std::uint8_t section : {0, 1})
      if (layout.recompute.repeats(part.module)) repeat_part(graphs, layout, part, section);
}

void mark_kept(LayerGraphs& graphs, const Layout& layout) {
  const auto keep = [&](const Nodes& nodes) {
    for (const ValueId id : live_into(nodes)) {
      Value& value = graphs.values[id];
      value.is_read_later = true;
      const bool is_of_frozen = !layout.trains && value.dtype;  // no weight gradient reads codes
      const bool is_kept_gradient = layout.weights_in_units || !value.is_gradient;
      if (is_kept_gradient && !is_of_frozen && !(value.is_gathered && value.dtype)) value.is_kept = true;
    }
  };
  for (const Nodes* nodes : {&graphs.backward, &graphs.weights, &graphs.again}) keep(*nodes);
  const auto is_repeated = [](const Node& n) { return n.is_recomputed(); };
  if (std::none_of(graphs.backward.begin(), graphs.backward.end(), is_repeated)) return;
  Nodes backward = graphs.backward;  // what a layer makes again is of all layers, too
  std::erase_if(backward, is_repeated);
  keep(backward);
}

std::size_t needed_by_backward(const LayerGraphs& graphs, bool whole) {
  const Nodes& forward = graphs.forward;
  if (whole) {
    const auto end =
        std::find_if(forward.begin(), forward.end(), [&](const Node& n) { return writes_output(graphs, n); });
    return static_cast<std::size_t>(end - forward.begin());
  }
  std::vector<ValueId> wanted;
  for (ValueId id = 0; id < graphs.values.size(); ++id)
    if (graphs.values[id].is_read_later) wanted.push_back(id);
  const std::vector<bool> is_needed = needed(forward, wanted);
  std::size_t count = 0;
  for (std::size_t i = 0; i < forward.size(); ++i)
    if (is_needed[i]) count = i + 1;
  return count;
}

}  // namespace stretto::passes
