#include <algorithm>
#include <map>

#include "model/counts/layer_order.hpp"
#include "model/layers/layers.hpp"
#include "model/transformer.hpp"

namespace stretto {
namespace {

bool is_cut_over_tensor(const Value& value) {
  const Dim dim = value.cols.dim;
  return dim == Dim::heads || dim == Dim::ffn || dim == Dim::vocab;
}

// Finds the parameters of one graph, in the order in which a framework registers them: module after module.
class Registration {
 public:
  Registration(const LayerGraphs& graphs, const Transformer& model) : graphs_(graphs), model_(model) {}

  void add_to(std::vector<Parameter>& parameters, std::vector<Parameter>& buffers, std::int64_t layer) const {
    for (const Node* node : in_order_of_modules(graphs_))
      for (std::size_t i = 0; i < node->operands.size(); ++i) {
        const Value& value = graphs_.of(node->operands[i].slice);
        if (value.kind != ValueKind::parameter) continue;
        std::vector<Parameter>& list = value.parameter == ParameterKind::buffer ? buffers : parameters;
        const bool is_known = std::any_of(list.begin(), list.end(),
                                          [&](const Parameter& p) { return p.name == value.name && p.layer == layer; });
        if (!is_known) list.push_back(parameter(*node, value, layer));
      }
  }

 private:
  Parameter parameter(const Node& node, const Value& value, std::int64_t layer) const {
    Parameter p{.name = value.name, .layer = layer, .rows = value.rows.size, .cols = value.cols.size};
    p.decayed = value.parameter == ParameterKind::matrix;
    const Value& result = graphs_.of(node.result());
    if (value.rows.dim == Dim::experts) {  // a weight is cut as the columns of its product are
      p.experts = model_.experts.num_moe_experts;
      p.shard = result.cols.dim == Dim::expert_width ? Shard::rows : Shard::columns;
    } else if (value.rows.dim != Dim::none) {
      p.shard = Shard::rows;
    } else if (value.cols.dim != Dim::none) {  // of a vector, its elements
      p.shard = p.decayed ? Shard::columns : Shard::rows;
    }
    if (p.shard == Shard::rows) p.segments = segments(p, result);
    p.is_for_heads =
        p.shard == Shard::none && std::any_of(node.operands.begin(), node.operands.end(), [&](const Operand& o) {
          return o.writes() && is_cut_over_tensor(graphs_.of(o.slice));
        });
    return p;
  }

  // Returns the segments of the columns that the parameter makes, of every expert one after the other.
  static std::vector<std::int64_t> segments(const Parameter& p, const Value& result) {
    std::vector<std::int64_t> all, each = result.segments;
    if (p.experts > 1 && each.empty()) each = {result.cols.size};
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(p.experts, 1); ++expert)
      all.insert(all.end(), each.begin(), each.end());
    return all;
  }

  const LayerGraphs& graphs_;
  const Transformer& model_;
};

struct Registered {
  std::vector<Parameter> parameters, buffers;
};

template <class Write>
Registered registered(const Transformer& model, std::int64_t layer, const Write& write) {
  LayerGraphs graphs;
  const TokenData data;
  Builder builder(graphs, model, data);
  write(builder);
  Registered all;
  Registration(graphs, model).add_to(all.parameters, all.buffers, layer);
  return all;
}

// Returns a list of all layers; each kind of layer is written once.
std::vector<Parameter> of_layers(const Transformer& model, std::vector<Parameter> Registered::*list) {
  std::map<LayerSpec, Registered> kinds;
  std::vector<Parameter> all;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerSpec spec = model.layer(layer);
    auto kind = kinds.find(spec);
    if (kind == kinds.end())
      kind = kinds.emplace(spec, registered(model, 0, [&](Builder& g) { layers::layer(g, spec); })).first;
    for (const Parameter& parameter : kind->second.*list) {
      all.push_back(parameter);
      all.back().layer = layer;
    }
  }
  return all;
}

}  // namespace

std::vector<Parameter> parameters(const Transformer& model) {
  std::vector<Parameter> all = registered(model, -1, layers::embedding).parameters;
  const std::size_t ends = all.size();
  for (Parameter& parameter : of_layers(model, &Registered::parameters)) all.push_back(std::move(parameter));
  const auto head = [&](Builder& g) { layers::head(g, model.head_weight()); };
  for (Parameter& parameter : registered(model, -1, head).parameters) {
    const auto is_it = [&](const Parameter& p) { return p.name == parameter.name; };  // a tied embedding
    if (std::none_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(ends), is_it))
      all.push_back(std::move(parameter));
  }
  return all;
}

std::vector<Parameter> buffers(const Transformer& model) { return of_layers(model, &Registered::buffers); }

std::int64_t parameter_count(const Transformer& model) {
  Transformer unpadded = model;
  unpadded.padded_vocab_size = model.vocab_size;
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(unpadded)) count += parameter.elements();
  return count;
}

std::int64_t active_parameter_count(const Transformer& model) {
  std::int64_t idle = 0;
  for (const Parameter& parameter : parameters(model))
    if (parameter.experts > 0)
      idle += parameter.elements() / parameter.experts * (parameter.experts - model.experts.moe_router_topk);
  return parameter_count(model) - idle;
}

}  // namespace stretto
