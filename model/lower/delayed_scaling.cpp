#include "model/lower/delayed_scaling.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

std::int64_t most_layers(const BlockShape& shape) {
  std::int64_t most = 0;
  for (const ModelChunk& chunk : shape.chunks) most = std::max(most, chunk.layers());
  return most;
}

class Adder {
 public:
  Adder(Schedule& schedule, const BlockShape& shape, std::string name, std::int64_t each)
      : schedule_(schedule), shape_(shape), name_(std::move(name)), each_(each), all_(each * most_layers(shape)) {}

  DelayedTensors run() {
    DelayedTensors tensors;
    tensors.each = each_;
    const std::int64_t length = shape_.precision.fp8_amax_history_len;
    tensors.amaxes = of_chunks(".amaxes", 1);
    tensors.amax = of_layers(".amax", tensors.amaxes, 1);
    tensors.scales = of_chunks(".scales", 1);
    tensors.scale = of_layers(".scale", tensors.scales, 1);
    tensors.histories = of_chunks(".histories", length);
    keep(".scale", tensors.scales, 1, 1);
    keep(".history", tensors.histories, length, 0);
    return tensors;
  }

 private:
  std::string suffix_of(std::size_t chunk) const {
    return shape_.chunks.size() > 1 ? ".c" + std::to_string(chunk) : "";
  }
  // Chunks without layers have the place of another one, which no operation uses for them.
  TensorId of_chunks(const char* name, std::int64_t length) {
    std::vector<TensorPlace> places(shape_.chunks.size());
    const auto any = std::find_if(shape_.chunks.begin(), shape_.chunks.end(),
                                  [](const ModelChunk& chunk) { return chunk.layers() > 0; });
    for (std::size_t c = 0; c < shape_.chunks.size(); ++c)
      if (shape_.chunks[c].layers() > 0)
        places[c].storage =
            add_storage(schedule_, name_ + name + suffix_of(c), Dtype::f32, BufferKind::optimizer_state, all_ * length);
    for (std::size_t c = 0; c < shape_.chunks.size(); ++c)
      if (shape_.chunks[c].layers() == 0) places[c] = places[static_cast<std::size_t>(any - shape_.chunks.begin())];
    const auto rows = length == 1 ? 1 : all_, cols = length == 1 ? all_ : length;
    const TensorId id = add_placed_tensor(schedule_, name_ + name, rows, cols, std::move(places));
    schedule_.tensors[id].layers = std::ssize(shape_.chunks);
    return id;
  }
  template <class Visit>
  void for_layers(Visit visit) const {
    for (std::size_t c = 0; c < shape_.chunks.size(); ++c)
      for (std::int64_t layer = shape_.chunks[c].first_layer; layer < shape_.chunks[c].end_layer; ++layer)
        visit(c, layer, layer - shape_.chunks[c].first_layer);
  }
  TensorId of_layers(const char* name, TensorId whole, std::int64_t length) {
    const Tensor of_chunk = schedule_.tensors[whole];
    std::vector<TensorPlace> places(static_cast<std::size_t>(shape_.model.num_layers));
    for_layers([&](std::size_t c, std::int64_t layer, std::int64_t in_chunk) {
      places[static_cast<std::size_t>(layer)] = {of_chunk.places[c].storage, in_chunk * each_ * length};
    });
    const TensorId id = add_placed_tensor(schedule_, name_ + name, 1, each_ * length, std::move(places));
    schedule_.tensors[id].layers = shape_.model.num_layers;
    return id;
  }
  // Adds the array to the state map; every rank of a stage has all of it.
  void keep(const char* name, TensorId whole, std::int64_t length, double initial) {
    StateMap& state = schedule_.state;
    const Tensor of_chunk = schedule_.tensors[whole];
    const auto array = static_cast<std::uint32_t>(state.arrays.size());
    state.arrays.push_back({name_ + name, each_, length, initial, 0, {{0, 1, each_ * length, each_ * length}}, false});
    std::vector<std::uint32_t> buckets;
    for (std::size_t c = 0; c < shape_.chunks.size(); ++c) {
      buckets.push_back(static_cast<std::uint32_t>(state.buckets.size()));
      if (shape_.chunks[c].layers() == 0) continue;
      state.buckets.push_back({static_cast<std::size_t>(shape_.map.stage_of(std::int64_t(c))), Expr(0), all_ * length});
      state.buckets.back().window(StatePart::parameters) = {of_chunk.places[c].storage, 0};
    }
    for_layers([&](std::size_t c, std::int64_t layer, std::int64_t in_chunk) {
      state.pieces.push_back({array, buckets[c], layer, in_chunk * each_ * length});
    });
  }

  Schedule& schedule_;
  const BlockShape& shape_;
  const std::string name_;
  const std::int64_t each_, all_;
};

}  // namespace

DelayedScaling add_delayed_scaling(Schedule& schedule, const BlockShape& shape) {
  std::int64_t matrices = 0;
  for (const LinearLayer& linear : linear_layers(shape.model, shape.linear_cuts())) matrices += matrices_of(linear);
  return {Adder(schedule, shape, "fp8.forward", 2 * matrices).run(),
          Adder(schedule, shape, "fp8.backward", matrices).run()};
}

void add_updates(Schedule& schedule, const BlockShape& shape, LaneId compute, DelayedScaling& scaling) {
  const Expr chunk = shape.chunks.size() > 1 ? shape.map.piece_of(Expr(Coord::pp), Expr(Coord::chunk)) : Expr(0);
  const auto add = [&](const std::string& name, Phase phase, Dtype format, DelayedTensors& tensors) {
    const View amaxes = whole(schedule, tensors.amaxes, chunk);
    Block block{name + ".update", {}, {}};
    if (shape.amax.exists()) {
      Operation reduce = collective_operation(name + ".all_reduce", shape.amax, CollectiveKind::all_reduce, amaxes.cols,
                                              phase, {accumulate(amaxes)});
      std::get<Collective>(reduce.work).reduction = Reduction::max;
      add_operation(schedule, block, std::move(reduce));
      block.waits.push_back({1, EdgeKind::finish_start, 0});
    }
    const LowPrecision& p = shape.precision;
    add_operation(schedule, block,
                  {name + ".update_scales",
                   UpdateScale{amaxes.cols, p.fp8_amax_history_len, format, p.fp8_margin,
                               p.fp8_amax_compute_algo == LowPrecision::AmaxAlgo::most_recent},
                   compute,
                   phase,
                   {accumulate(amaxes), accumulate(whole(schedule, tensors.histories, chunk)),
                    accumulate(whole(schedule, tensors.scales, chunk))}});
    tensors.update = add_block(schedule, std::move(block));
  };
  add("fp8.forward", Phase::forward, shape.low.forward, scaling.forward);
  add("fp8.backward", Phase::dgrad, shape.low.backward, scaling.backward);
}

void zero_amaxes(Schedule& schedule, const BlockShape& shape, const DelayedScaling& scaling, std::int64_t stage,
                 LaneId compute, Block& block) {
  for (std::size_t c = 0; c < shape.chunks.size(); ++c) {
    if (shape.map.stage_of(std::int64_t(c)) != stage || shape.chunks[c].layers() == 0) continue;
    for (const DelayedTensors* tensors : {&scaling.forward, &scaling.backward}) {
      const View amaxes = whole(schedule, tensors->amaxes, std::int64_t(c));
      add_operation(
          schedule, block,
          {schedule.tensors[tensors->amaxes].name + ".zero" + (shape.chunks.size() > 1 ? ".c" + std::to_string(c) : ""),
           Fill{amaxes.cols, 0},
           compute,
           Phase::setup,
           {write(amaxes)}});
    }
  }
}

}  // namespace stretto
