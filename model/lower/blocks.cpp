#include "model/lower/blocks.hpp"

#include <algorithm>

#include "model/layers/layers.hpp"
#include "model/lower/block_writer.hpp"
#include "model/lower/chunk_ends.hpp"
#include "model/lower/delayed_scaling.hpp"
#include "model/lower/graph_writer.hpp"
#include "model/passes/passes.hpp"

namespace stretto {
namespace {

// Writes the blocks of one rank from graphs.
class Blocks {
 public:
  Blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters, const View& loss,
         LaneId compute, DelayedScaling* delayed)
      : schedule_(schedule),
        shape_(shape),
        compute_(compute),
        delayed_(delayed),
        w_(schedule, shape, parameters),
        graphs_(schedule, shape, w_, compute),
        ends_(schedule, shape, w_, graphs_, loss) {
    kinds_ = layer_graphs(schedule, shape);
    graphs_.values().set_layers(kinds_);
    add_stream();
  }

  ModelBlocks write() {
    ModelBlocks blocks = std::move(blocks_);
    const View first = w_.act(x_), last = w_.act(x_, shape_.model.num_layers);
    blocks.embedding_forward = ends_.embedding_forward(first);
    for (std::size_t k = 0; k < kinds_.size(); ++k) write_forward(k, blocks.layers.emplace_back());
    if (shape_.recompute.granularity == Recompute::Granularity::selective_op)
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        if (k > 0 && shape_.kinds[k - 1].spec == shape_.kinds[k].spec) {
          blocks.layers[k].recompute = blocks.layers[k - 1].recompute;
          continue;
        }
        begin_layer(k);
        w_.begin(std::string("layer.recompute") + shape_.kinds[k].spec.suffix());
        blocks.layers[k].recompute = graphs_.write(kinds_[k], kinds_[k].again);
      }
    blocks.head_forward = ends_.head_forward(last);
    blocks.head_backward = ends_.head_backward(last);
    if (shape_.puts_off_head()) blocks.head_wgrad = ends_.head_weights(last);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      begin_layer(k);
      w_.begin_backward("layer.backward" + suffix_of(k));
      blocks.layers[k].backward = graphs_.write(kinds_[k], kinds_[k].backward);
      if (!shape_.weights_apart) continue;
      w_.begin_backward("layer.wgrad" + suffix_of(k));
      blocks.layers[k].wgrad = graphs_.write(kinds_[k], kinds_[k].weights);
    }
    if (delayed_ != nullptr) {
      add_updates(schedule_, shape_, compute_, *delayed_);
      blocks.update_forward = delayed_->forward.update;
      blocks.update_backward = delayed_->backward.update;
    }
    if (!shape_.frozen_base) blocks.embedding_backward = ends_.embedding_backward(first);
    return blocks;
  }

 private:
  std::string suffix_of(std::size_t kind) const {
    const LayerKind& of = shape_.kinds[kind];
    return of.spec.suffix() + shape_.cp.kinds[of.context].suffix +
           (shape_.low.is_on() && !of.in_codes ? ".numbers" : "");
  }

  // The residual stream between the sections of all layers, and its gradient.
  void add_stream() {
    const std::int64_t rows = w_.residual_rows(), hidden = shape_.model.hidden_size, layers = shape_.model.num_layers;
    x_ = w_.recomputable("x", rows, hidden, layers + 1, {.is_input = true, .role = TensorRole::layer_input});
    std::vector<bool> has, is_again;
    for (const std::size_t kind : shape_.kind_of_layer) {
      const LayerSpec& spec = shape_.kinds[kind].spec;
      has.push_back(spec.has_mlp() && spec.mixer != MixerKind::none);
      is_again.push_back(std::any_of(kinds_[kind].values.begin(), kinds_[kind].values.end(),
                                     [](const Value& v) { return v.given == Given::between && v.is_again; }));
    }
    BlockWriter::Role between{.again = is_again, .role = TensorRole::x_mid};
    // Where W units compute weight gradients, its storage also holds the gradient of the first section's last product.
    if (!shape_.weights_in_units && std::count(has.begin(), has.end(), false) > 0) between.layers = has;
    const bool has_any = std::count(has.begin(), has.end(), true) > 0;
    if (shape_.weights_in_units || has_any) between_ = w_.recomputable("x_mid", rows, hidden, layers, between);
    if (delayed_ != nullptr) {
      PlacedValues& values = graphs_.values();
      values.set_given(Given::forward_scales, whole(schedule_, delayed_->forward.scale, Coord::layer));
      values.set_given(Given::forward_amaxes, whole(schedule_, delayed_->forward.amax, Coord::layer));
      values.set_given(Given::backward_scales, whole(schedule_, delayed_->backward.scale, Coord::layer));
      values.set_given(Given::backward_amaxes, whole(schedule_, delayed_->backward.amax, Coord::layer));
    }
    blocks_.gradient = w_.workspace("dx", rows, hidden, shape_.gradient_buffers);
    graphs_.values().set_given(Given::stream_gradient, whole(schedule_, blocks_.gradient, 0, Coord::buffer));
    output_ = w_.act(x_, Expr(Coord::layer) + 1);
    if (shape_.chunks.size() <= 1) return;
    const ChunkEnds ends = add_chunk_ends(schedule_, w_, shape_, x_);
    blocks_.chunk_input = ends.input;
    blocks_.chunk_output = ends.output;
    output_ = whole(schedule_, ends.next_input, Coord::layer,
                    Expr(Coord::slot) * Expr(shape_.output_buffers) + Expr(Coord::buffer));
  }

  void begin_layer(std::size_t kind) {
    graphs_.set_context(shape_.kinds[kind].context);
    graphs_.values().set_in_layer(true);
    graphs_.values().set_given(Given::input, w_.act(x_, Coord::layer));
    if (between_) graphs_.values().set_given(Given::between, w_.act(*between_, Coord::layer));
    graphs_.values().set_given(Given::output, output_);
  }

  void write_forward(std::size_t kind, LayerBlocks& layer) {
    const LayerGraphs& graphs = kinds_[kind];
    begin_layer(kind);
    if (!graphs.quantise_weights.empty()) {
      w_.begin("layer.quantise_weights" + suffix_of(kind));
      layer.quantise_weights = graphs_.write(graphs, graphs.quantise_weights);
    }
    w_.begin("layer.forward" + suffix_of(kind));
    layer.forward = graphs_.write(graphs, graphs.forward);
    if (shape_.recompute.granularity != Recompute::Granularity::full) return;
    layer.recompute = w_.copy_to_recompute(layer.forward, "layer.recompute" + suffix_of(kind));
    layer.recompute_inner = needed_of_forward(graphs);
  }

  // Returns the number of operations, from the first one on, that the layer's own backward pass needs.
  std::uint32_t needed_of_forward(const LayerGraphs& graphs) const {
    const auto end = graphs.forward.begin() +
                     static_cast<std::ptrdiff_t>(passes::needed_by_backward(graphs, shape_.recompute.whole_layers));
    return static_cast<std::uint32_t>(
        std::count_if(graphs.forward.begin(), end, [](const Node& n) { return !n.operands.empty(); }));
  }

  Schedule& schedule_;
  const BlockShape& shape_;
  const LaneId compute_;
  DelayedScaling* const delayed_;
  BlockWriter w_;
  GraphWriter graphs_;
  ModelEnds ends_;
  std::vector<LayerGraphs> kinds_;  // [BlockShape::kinds]
  ModelBlocks blocks_;
  TensorId x_ = 0;                        // the residual stream before layers,
  std::optional<TensorId> between_ = {};  // and within those that have a mixer and an MLP
  View output_;                           // and after a layer
};

}  // namespace

ModelBlocks add_model_blocks(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                             const View& loss, LaneId compute, DelayedScaling* delayed) {
  return Blocks(schedule, shape, parameters, loss, compute, delayed).write();
}

}  // namespace stretto
