#include "model/lower/block_writer.hpp"

#include <algorithm>
#include <cassert>
#include <optional>

namespace stretto {

BlockWriter::BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters)
    : schedule_(schedule), parameters_(parameters), shape_(shape), dtype_(schedule.compute_dtype), slot_(Coord::slot) {
  const Transformer& model = shape.model;
  const std::int64_t latent = model.latent.any() ? std::max(model.latent.q_lora_rank, model.latent.kv_lora_rank) : 0,
                     width = std::max(model.hidden_size, latent);
  if (shape.sequence_parallel) gathered_ = d_gathered_ = workspace("gathered", tokens(), width);
  if (shape.sequence_parallel && shape.pairs_passes) d_gathered_ = workspace("d_gathered", tokens(), width);
  const bool rounds_at_random = shape.low.recipe == LowPrecisionRules::Recipe::nvfp4;
  if (model.hidden_dropout > 0 || model.attention_dropout > 0 || rounds_at_random) add_dropout_keys();
  if (shape.data.masks_documents || shape.data.resets_positions) {
    documents_ = add_tensor(schedule, kDocuments, Dtype::i32, BufferKind::input, shape.data.micro_batch_size,
                            model.seq_length, 1, shape.micro_batches);
    schedule.step_data.documents = documents_;
  }
}

void BlockWriter::add_dropout_keys() {
  const std::int64_t layers = shape_.model.num_layers, count = layers * shape_.micro_batches;
  const StorageId storage =
      add_storage(schedule_, kDropoutKey, Dtype::i32, BufferKind::input, count * kDropoutKeyWords);
  std::vector<TensorPlace> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back({storage, i * kDropoutKeyWords});
  dropout_key_ = family(kDropoutKey, 1, kDropoutKeyWords, layers, shape_.micro_batches, std::move(places));
  schedule_.step_data.dropout_keys = dropout_key_;
}

void BlockWriter::begin(const std::string& name) {
  block_ = {name, {}, {}};
  is_concurrent_.clear();
  is_backward_ = false;
}

void BlockWriter::begin_backward(const std::string& name) {
  begin(name);
  is_backward_ = true;
}

BlockId BlockWriter::end() {
  // Concurrent operations wait for all that ran before the first of them.
  is_concurrent_.resize(block_.ops.size(), false);
  std::uint32_t before = 0, begin = 0;  // operations [before, begin) are concurrent, and so are the next ones
  for (std::uint32_t i = 1; i < block_.ops.size(); ++i) {
    if (!is_concurrent_[i]) before = begin, begin = i;
    for (std::uint32_t on = before; on < begin; ++on)
      if (schedule_.operations[block_.ops[i]].lane != schedule_.operations[block_.ops[on]].lane)
        block_.waits.push_back({i, EdgeKind::finish_start, on});
  }
  return add_block(schedule_, std::move(block_));
}

void BlockWriter::emit(Operation operation, bool is_concurrent) {
  if (is_backward_)
    for (Access& access : operation.accesses) access.view.tensor = in_backward(access.view.tensor);
  append(block_, std::move(operation));
  if (!is_concurrent) return;
  is_concurrent_.resize(block_.ops.size(), false);
  is_concurrent_.back() = true;
}

void BlockWriter::append(Block& block, Operation operation) {
  const auto known = written_.find(operation.name);
  if (known == written_.end()) {
    const std::string name = operation.name;
    written_[name] = add_operation(schedule_, block, std::move(operation));
    return;
  }
  assert(schedule_.operations[known->second] == operation);
  block.ops.push_back(known->second);
}

TensorId BlockWriter::activation(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers) {
  return add_tensor(schedule_, name, dtype_, BufferKind::activation, rows, cols, layers, shape_.head_slots());
}
void BlockWriter::add_places(std::vector<TensorPlace>& places, const std::string& name, Dtype dtype,
                             std::int64_t elements, std::int64_t layer, HomeStorages& storages) {
  const std::int64_t slots = shape_.most_slots();
  const LayerSlots& of_layer = shape_.slots[static_cast<std::size_t>(layer)];
  std::map<std::int64_t, StorageId>& of_home = storages[of_layer.home];
  for (const std::int64_t slot : of_layer.used) {
    if (of_home.contains(slot)) continue;
    const std::string suffix = ".l" + std::to_string(of_layer.home) + (slots > 1 ? ".s" + std::to_string(slot) : "");
    of_home[slot] = add_storage(schedule_, name + suffix, dtype, BufferKind::activation, elements);
  }
  // A family has a place for every slot. No operation reads a slot that no micro-batch of the layer takes.
  std::size_t next = 0;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    while (next + 1 < of_layer.used.size() && of_layer.used[next] < slot) ++next;
    places.push_back({of_home.at(of_layer.used[next]), 0});
  }
}

TensorId BlockWriter::recomputable(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                                   Role role) {
  const Recompute& recompute = shape_.recompute;
  // A shared activation is computed again for each layer by itself.
  const std::int64_t slots = shape_.most_slots();
  const Dtype dtype = role.dtype           ? *role.dtype
                      : role.is_mask       ? Dtype::i32
                      : role.is_statistics ? statistics_type()
                                           : dtype_;
  std::vector<TensorPlace> places;
  places.reserve(static_cast<std::size_t>(layers * slots));
  std::optional<StorageId> passed;
  std::vector<std::optional<StorageId>> recomputed(static_cast<std::size_t>(recompute.group()));  // [layer of a group]
  const auto share = [&](std::optional<StorageId>& storage, const std::string& suffix, BufferKind kind) {
    if (!storage) storage = add_storage(schedule_, name + suffix, dtype, kind, rows * cols);
    places.insert(places.end(), static_cast<std::size_t>(slots), {*storage, 0});
  };
  HomeStorages storages;
  std::optional<StorageId> again;
  std::vector<std::int64_t> without, repeated;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool is_head_input = layer >= shape_.model.num_layers;
    const std::int64_t in_chunk = is_head_input ? 0 : shape_.layer_in_chunk[static_cast<std::size_t>(layer)];
    const std::int64_t in_group = in_chunk % recompute.group();
    const bool is_again = role.again.empty() ? role.is_again : role.again[static_cast<std::size_t>(layer)];
    if (!role.layers.empty() && !role.layers[static_cast<std::size_t>(layer)]) {
      without.push_back(layer);
      places.resize(places.size() + static_cast<std::size_t>(slots));
    } else if (is_again) {
      // A recomputed activation is used up before the next one is made, whatever the micro-batch.
      share(again, ".recomputed", BufferKind::activation);
      repeated.push_back(layer);
    } else if (!role.passing.empty() && role.passing[static_cast<std::size_t>(layer)]) {
      share(passed, "", BufferKind::workspace);
    } else if (!is_head_input && recompute.is_full(in_chunk) && !(role.is_input && in_group == 0)) {
      share(recomputed[static_cast<std::size_t>(in_group)], ".recomputed" + std::to_string(in_group),
            BufferKind::activation);
    } else {
      add_places(places, name, dtype, rows * cols, layer, storages);
    }
  }
  // Layers without this activation reuse the first layer's place; no operation reads it.
  if (!without.empty()) {
    const auto first = std::find(role.layers.begin(), role.layers.end(), true) - role.layers.begin();
    for (const std::int64_t layer : without)
      std::copy_n(places.begin() + first * slots, slots, places.begin() + layer * slots);
  }
  std::vector<TensorPlace> of_backward = places;
  const TensorId id = family(name, rows, cols, layers, slots, std::move(places));
  schedule_.tensors[id].role = role.role;
  if (!shape_.pairs_passes || repeated.empty()) return id;
  // Two concurrent passes are a forward and a backward pass. Where weight gradients come after the next
  // layer's backward pass, two layers that follow each other may not share a place.
  std::vector<std::optional<StorageId>> backward(shape_.weights_apart ? 2 : 1);
  for (const std::int64_t layer : repeated) {
    const auto turn =
        static_cast<std::size_t>(shape_.layer_in_chunk[static_cast<std::size_t>(layer)]) % backward.size();
    if (!backward[turn])
      backward[turn] = add_storage(schedule_, name + ".recomputed.backward" + std::to_string(turn), dtype,
                                   BufferKind::activation, rows * cols);
    std::fill_n(of_backward.begin() + layer * slots, slots, TensorPlace{*backward[turn], 0});
  }
  of_backward_[id] = family(name + ".backward", rows, cols, layers, slots, std::move(of_backward));
  return id;
}

TensorId BlockWriter::kept_gradient(const std::string& name, TensorId activation, const std::vector<bool>& with) {
  const Tensor of = schedule_.tensors[activation];
  const std::int64_t layers = shape_.model.num_layers;
  std::vector<TensorPlace> places;
  HomeStorages storages;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (!with.empty() && !with[static_cast<std::size_t>(layer)]) {  // no operation reads the place
      places.insert(places.end(), of.places.begin() + layer * of.slots, of.places.begin() + (layer + 1) * of.slots);
      continue;
    }
    const std::int64_t own = std::ssize(shape_.slots[static_cast<std::size_t>(layer)].used);
    const StorageId first = of.places[static_cast<std::size_t>(layer * of.slots)].storage;
    if (schedule_.storages[first].kind == BufferKind::workspace) {
      add_places(places, name, schedule_.storages[first].dtype, of.elements(), layer, storages);
      continue;
    }
    for (std::int64_t slot = 0; slot < of.slots; ++slot)
      places.push_back(of.places[static_cast<std::size_t>(layer * of.slots + (slot + own - 1) % own)]);
  }
  return family(name, of.rows, of.cols, layers, of.slots, std::move(places));
}

TensorId BlockWriter::family(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t layers,
                             std::int64_t slots, std::vector<TensorPlace> places) {
  const TensorId id = add_placed_tensor(schedule_, name, rows, cols, std::move(places));
  schedule_.tensors[id].layers = layers;
  schedule_.tensors[id].slots = slots;
  return id;
}

View BlockWriter::head_activation(const std::string& name, std::int64_t rows, std::int64_t cols) {
  if (shape_.deferred == 0) return act(activation(name, rows, cols, 1));
  const std::int64_t kept = shape_.deferred + (shape_.deferred < shape_.micro_batches ? shape_.head_slots() : 0);
  return whole(schedule_, add_tensor(schedule_, name, dtype_, BufferKind::activation, rows, cols, 1, kept), 0,
               select_le(Expr(Coord::micro_batch), shape_.deferred - 1, Coord::micro_batch,
                         Expr(Coord::slot) + Expr(shape_.deferred)));
}

BlockId BlockWriter::copy_to_recompute(BlockId block, const std::string& name) {
  Block copied{name, {}, schedule_.blocks[block].waits};
  for (const OpId id : std::vector<OpId>(schedule_.blocks[block].ops)) {
    Operation operation = schedule_.operations[id];
    operation.name += ".recompute";
    operation.recomputed = Recomputed::layer;
    append(copied, std::move(operation));
  }
  return add_block(schedule_, std::move(copied));
}

TensorId BlockWriter::workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots) {
  return add_tensor(schedule_, name, dtype_, BufferKind::workspace, rows, cols, 1, slots);
}
View BlockWriter::parameter(const std::string& name, const Expr& layer) const {
  return whole(schedule_, parameters_.parameter.at(name), layer);
}
View BlockWriter::gradient(const std::string& name, const Expr& layer) const {
  return whole(schedule_, parameters_.gradient.at(name), layer);
}

View BlockWriter::gathering_place(Phase phase, std::int64_t cols) const {
  View all = work(phase == Phase::forward ? gathered_ : d_gathered_);
  all.cols = all.ld = cols;
  return all;
}

View BlockWriter::dropout_key() const { return whole(schedule_, dropout_key_, Coord::layer, Coord::micro_batch); }

}  // namespace stretto
