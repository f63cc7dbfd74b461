#include "model/lower/blocks.hpp"

#include <algorithm>

#include "model/lower/block_writer.hpp"
#include "model/lower/chunk_ends.hpp"
#include "model/lower/delayed_scaling.hpp"
#include "model/lower/derived.hpp"
#include "model/lower/graph_writer.hpp"
#include "model/lower/sections.hpp"

namespace stretto {

ModelBlocks add_model_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                             const View& loss, LaneId compute, DelayedScaling* delayed, Lowering lowering) {
  if (lowering == Lowering::derived) return add_derived_blocks(schedule, shape, parameters, loss, compute, delayed);
  BlockWriter w(schedule, shape, parameters, compute);
  GraphWriter graphs(schedule, shape, w, compute);
  ModelEnds ends(schedule, shape, w, graphs, loss);
  Sections sections(schedule, w, shape, delayed, graphs.values());
  const TensorId x = sections.kept().x;
  ModelBlocks blocks;
  blocks.gradient = sections.gradient();
  View x_next = w.act(x, Expr(Coord::layer) + 1);
  if (shape.chunks.size() > 1) {
    const ChunkEnds ends = add_chunk_ends(schedule, w, shape, x);
    blocks.chunk_input = ends.input;
    blocks.chunk_output = ends.output;
    x_next = whole(schedule, ends.next_input, Coord::layer,
                   Expr(Coord::slot) * Expr(shape.output_buffers) + Expr(Coord::buffer));
  }
  // The residual stream at the ends of the sections of a layer.
  const auto stream_of = [&](const std::vector<Section>& parts) {
    std::vector<View> stream = {w.act(x, Coord::layer), w.act(sections.kept().x_mid, Coord::layer)};
    stream.resize(parts.size());
    stream.push_back(x_next);
    return stream;
  };
  const auto suffix_of = [&](const LayerKind& kind) {
    return kind.spec.suffix() + shape.cp.kinds[kind.context].suffix +
           (shape.low.is_on() && !kind.in_codes ? ".numbers" : "");
  };
  const auto is_needed = [&](OpId id, const Section& last) {
    const Operation& operation = schedule.operations[id];
    if (!shape.recompute.whole_layers) return !operation.name.starts_with(w.label(last.product) + ".fprop");
    // An operation that writes the layer's output would overwrite a later layer's input, or a message that is not yet
    // sent.
    return std::none_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
      return access.mode != AccessMode::read && access.view.tensor == x_next.tensor;
    });
  };

  const View first = w.act(x), last = w.act(x, shape.model.num_layers);
  blocks.embedding_forward = ends.embedding_forward(first);
  for (const LayerKind& kind : shape.kinds) {
    LayerBlocks& layer = blocks.layers.emplace_back();
    const std::vector<Section> parts = sections_of(kind.spec);
    const std::vector<View> stream = stream_of(parts);
    sections.set_kind(kind);
    if (kind.in_codes && !shape.codes_in_passes) {
      w.begin("layer.quantise_weights" + suffix_of(kind));
      sections.quantise_weights();
      layer.quantise_weights = w.end();
    }
    w.begin("layer.forward" + suffix_of(kind));
    if (kind.in_codes && shape.codes_in_passes) sections.quantise_weights();
    for (std::size_t s = 0; s < parts.size(); ++s) (sections.*parts[s].forward)(stream[s], stream[s + 1]);
    layer.forward = w.end();
    if (shape.recompute.granularity != Recompute::Granularity::full) continue;
    layer.recompute = w.copy_to_recompute(layer.forward, "layer.recompute" + suffix_of(kind));
    const std::vector<OpId>& ops = schedule.blocks[layer.recompute].ops;
    while (layer.recompute_inner < ops.size() && is_needed(ops[layer.recompute_inner], parts.back()))
      ++layer.recompute_inner;
  }
  if (shape.recompute.granularity == Recompute::Granularity::selective_op)
    for (std::size_t k = 0; k < shape.kinds.size(); ++k) {
      const LayerKind& kind = shape.kinds[k];
      if (k > 0 && shape.kinds[k - 1].spec == kind.spec) {
        blocks.layers[k].recompute = blocks.layers[k - 1].recompute;
        continue;
      }
      sections.set_kind(kind);
      w.begin_recomputation(std::string("layer.recompute") + kind.spec.suffix());
      sections.light_forward(w.act(x, Coord::layer));
      blocks.layers[k].recompute = w.end();
    }
  blocks.head_forward = ends.head_forward(last);
  blocks.head_backward = ends.head_backward(last);
  if (shape.puts_off_head()) blocks.head_wgrad = ends.head_weights(last);
  for (std::size_t k = 0; k < blocks.layers.size(); ++k) {
    const std::string suffix = suffix_of(shape.kinds[k]);
    const std::vector<Section> parts = sections_of(shape.kinds[k].spec);
    const std::vector<View> stream = stream_of(parts);
    sections.set_kind(shape.kinds[k]);
    w.begin_backward("layer.backward" + suffix, shape.weights_apart);
    if (shape.kinds[k].in_codes && shape.codes_in_passes) sections.quantise_weights(Phase::dgrad);
    for (std::size_t s = parts.size(); s-- > 0;) (sections.*parts[s].backward)(stream[s]);
    blocks.layers[k].backward = w.end();
    if (shape.weights_apart) blocks.layers[k].wgrad = w.end_weights("layer.wgrad" + suffix);
  }
  if (delayed != nullptr) {
    add_updates(schedule, shape, compute, *delayed);
    blocks.update_forward = delayed->forward.update;
    blocks.update_backward = delayed->backward.update;
  }
  if (!shape.frozen_base) blocks.embedding_backward = ends.embedding_backward(first);
  return blocks;
}

}  // namespace stretto
