#include "model/lower/graph_writer.hpp"

#include <string>
#include <utility>

#include "model/graph/fit.hpp"
#include "model/layers/layers.hpp"
#include "model/lower/delayed_scaling.hpp"
#include "model/passes/passes.hpp"

namespace stretto {

ContextCut context_cut(const ContextKind& kind) {
  return {kind.exchange.size, kind.ring.size, kind.exchange.place, kind.ring.place, kind.gathers, kind.suffix};
}

Layout layout_of(const Schedule& schedule, const BlockShape& shape) {
  const Dtype compute_dtype = schedule.compute_dtype;
  const TokenTransport transport =
      shape.ep.exists() ? schedule.communicators[shape.ep.communicator].transport : TokenTransport::nccl;
  Layout layout{.model = shape.model};
  layout.data = shape.data;
  layout.tp = shape.tp.size;
  layout.tp_place = shape.tp.place;
  layout.sequence_parallel = shape.sequence_parallel;
  layout.parts = shape.parts();
  layout.context = context_cut(shape.cp.kinds.front());
  layout.experts = shape.experts;
  layout.experts.in_transport = shape.ep.exists() && transport != TokenTransport::nccl;
  layout.concurrent_passes = shape.pairs_passes;
  layout.micro_batches = shape.micro_batches;
  layout.rounds_statistics = accumulation_of(compute_dtype) != compute_dtype;
  layout.tokens = shape.tokens();
  layout.loss_scale = shape.loss_scale;
  layout.trains = !shape.frozen_base;
  layout.is_unfused = shape.attention_backend == AttentionBackend::unfused;
  layout.fusions = shape.fusions;
  return layout;
}

CodesOf codes_of(const BlockShape& shape) {
  CodesOf codes;
  codes.rules = shape.low;
  codes.is_mixed = shape.has_numbers();
  codes.in_passes = shape.codes_in_passes;
  std::int64_t first = 0;
  for (const LinearLayer& linear : linear_layers(shape.model, shape.linear_cuts())) {
    bool has_codes = false;
    for (std::int64_t layer = 0; layer < shape.model.num_layers; ++layer)
      has_codes =
          has_codes || (shape.in_codes[static_cast<std::size_t>(layer)] && linear.is_in(shape.model.layer(layer)));
    if (!linear.is_grouped()) ++codes.count;
    if (has_codes) codes.linears.push_back({linear, std::ssize(codes.linears), first});
    first += matrices_of(linear);
  }
  return codes;
}

std::vector<LayerGraphs> layer_graphs(const Schedule& schedule, const BlockShape& shape) {
  Layout layout = layout_of(schedule, shape);
  layout.recompute = shape.recompute;
  layout.weights_apart = shape.weights_apart;
  layout.weights_in_units = shape.weights_in_units;
  if (shape.low.is_on()) layout.codes = codes_of(shape);
  std::vector<LayerGraphs> kinds;
  for (const LayerKind& kind : shape.kinds) {
    LayerGraphs& graphs = kinds.emplace_back();
    Builder builder(graphs, shape.model, layout.data);
    layout.context = context_cut(shape.cp.kinds[kind.context]);
    layout.codes.acts = kind.in_codes;
    layers::layer(builder, kind.spec);
    // Layers of other kinds may have an equal operation with another output.
    for (Node& node : graphs.forward)
      if (node.adds_to_stream) node.suffix = kind.spec.suffix();
    passes::derive(graphs, layout);
  }
  return kinds;
}

const Group& GraphWriter::group_of(Ranks ranks) const {
  switch (ranks) {
    case Ranks::tensor:
      return shape_.tp;
    case Ranks::exchange:
      return shape_.cp.kinds[context_].exchange;
    case Ranks::ring:
      return shape_.cp.kinds[context_].ring;
    case Ranks::experts:
      return shape_.ep;
    case Ranks::expert_counts:
      return shape_.ep_counts;
    case Ranks::expert_tokens:
      return shape_.expert_tokens;
    case Ranks::balance:
      return shape_.sharing_tokens;
  }
  return shape_.tp;
}

BlockId GraphWriter::write(const LayerGraphs& graphs, const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    if (node.operands.empty()) continue;
    std::vector<Access> accesses;
    const Phase gathers_for = node.is_recomputed() ? Phase::dgrad : node.phase;
    for (const Operand& operand : node.operands)
      accesses.push_back({operand.mode, values_.view(graphs, operand.slice, node.phase, gathers_for)});
    Operation operation{name_of(node), fit(node, graphs, layout_), compute_, node.phase, std::move(accesses)};
    if (auto* collective = std::get_if<Collective>(&operation.work)) {
      collective->communicator = group_of(node.ranks).communicator;
      operation.lane = group_of(node.ranks).lane;
    }
    if (auto* message = std::get_if<PointToPoint>(&operation.work)) {
      message->communicator = group_of(node.ranks).communicator;
      operation.lane = message->is_send ? shape_.cp.send : shape_.cp.recv;
    }
    if (node.concurrent_half > 0 && operation.lane == compute_) operation.lane = shape_.shared_expert;
    operation.module = node.module;
    operation.recomputed = node.recomputed;
    operation.codes_of = node.codes_of;
    w_.emit(std::move(operation), node.is_concurrent);
  }
  return w_.end();
}

ModelEnds::ModelEnds(Schedule& schedule, const BlockShape& shape, BlockWriter& writer, GraphWriter& graphs,
                     const View& loss)
    : w_(writer), graphs_(graphs) {
  Layout layout = graphs.layout();
  Builder embedding(embedding_, shape.model, layout.data), head(head_, shape.model, layout.data);
  layers::embedding(embedding);
  layers::head(head, shape.head_weight);
  passes::derive(embedding_, layout);
  layout.weights_apart = layout.weights_in_units = shape.puts_off_head();
  passes::derive(head_, layout);

  PlacedValues& values = graphs.values();
  const auto input = [&](const char* name, Given which) {
    const TensorId ids =
        add_tensor(schedule, name, Dtype::i32, BufferKind::input, writer.tokens(), 1, 1, shape.micro_batches);
    values.set_given(which, whole(schedule, ids, 0, Coord::micro_batch));
    return ids;
  };
  schedule.step_data.tokens = input("tokens", Given::tokens);
  schedule.step_data.targets = input("targets", Given::targets);
  values.set_given(Given::loss, loss);
  if (schedule.step_data.dropout_keys) values.set_given(Given::dropout_key, writer.dropout_key());
  if (schedule.step_data.documents) values.set_given(Given::documents, writer.documents());
  if (!shape.data.masks_ends) return;
  const TensorId weight = add_tensor(schedule, kLossWeight, Dtype::f64, BufferKind::input, 1, 1);
  schedule.step_data.loss_weight = weight;
  values.set_given(Given::loss_weight, whole(schedule, weight));
}

BlockId ModelEnds::write(const char* name, const LayerGraphs& graphs, const std::vector<Node>& nodes, const View& x) {
  graphs_.values().set_in_layer(false);
  graphs_.values().set_given(Given::input, x);
  w_.begin(name);
  return graphs_.write(graphs, nodes);
}

}  // namespace stretto
