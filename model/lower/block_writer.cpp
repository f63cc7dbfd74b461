#include "model/lower/block_writer.hpp"

#include <algorithm>
#include <cassert>
#include <optional>

#include "model/lower/quantised_linears.hpp"

namespace stretto {

BlockWriter::BlockWriter(Schedule& schedule, const BlockShape& shape, const ParameterTensors& parameters,
                         LaneId compute)
    : schedule_(schedule),
      parameters_(parameters),
      shape_(shape),
      lane_(compute),
      dtype_(schedule.compute_dtype),
      slot_(Coord::slot) {
  const Transformer& model = shape.model;
  const std::int64_t latent = model.latent.any() ? std::max(model.latent.q_lora_rank, model.latent.kv_lora_rank) : 0,
                     width = std::max(model.hidden_size, latent);
  if (shape.sequence_parallel) gathered_ = d_gathered_ = workspace("gathered", tokens(), width);
  if (shape.sequence_parallel && shape.pairs_passes) d_gathered_ = workspace("d_gathered", tokens(), width);
  const bool rounds_at_random = shape.low.recipe == LowPrecisionRules::Recipe::nvfp4;
  if (model.hidden_dropout > 0 || model.attention_dropout > 0 || rounds_at_random) add_dropout_keys();
  if (shape.masks_documents || shape.resets_positions) {
    documents_ = add_tensor(schedule, kDocuments, Dtype::i32, BufferKind::input, shape.micro_batch_size,
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

void BlockWriter::begin(const std::string& name, bool weights_apart) {
  block_ = {name, {}, {}};
  suffix_.clear();
  recomputed_ = Recomputed::none;
  is_beside_.clear();
  weights_apart_ = weights_apart;
  is_backward_ = false;
}

void BlockWriter::begin_recomputation(const std::string& name) {
  begin(name);
  suffix_ = ".recompute";
  recomputed_ = Recomputed::layer;
}

void BlockWriter::begin_backward(const std::string& name, bool weights_apart) {
  begin(name, weights_apart);
  is_backward_ = true;
}

BlockId BlockWriter::end() {
  // Concurrent operations wait for all that ran before the first of them.
  is_beside_.resize(block_.ops.size(), false);
  std::uint32_t before = 0, begin = 0;  // operations [before, begin) are concurrent, and so are the next ones
  for (std::uint32_t i = 1; i < block_.ops.size(); ++i) {
    if (!is_beside_[i]) before = begin, begin = i;
    for (std::uint32_t on = before; on < begin; ++on)
      if (schedule_.operations[block_.ops[i]].lane != schedule_.operations[block_.ops[on]].lane)
        block_.waits.push_back({i, EdgeKind::finish_start, on});
  }
  return add_block(schedule_, std::move(block_));
}

BlockId BlockWriter::end_weights(const std::string& name) {
  begin_backward(name);
  for (const std::function<void()>& write : put_off_) write();
  put_off_.clear();
  return end();
}

void BlockWriter::add(Operation operation) {
  operation.module = module_;
  operation.recomputed = recomputed_;
  operation.codes_of = codes_of_;
  emit(std::move(operation));
}

void BlockWriter::emit(Operation operation, bool is_concurrent) {
  if (is_backward_)
    for (Access& access : operation.accesses) access.view.tensor = in_backward(access.view.tensor);
  append(block_, std::move(operation));
  if (!is_concurrent) return;
  is_beside_.resize(block_.ops.size(), false);
  is_beside_.back() = true;
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

void BlockWriter::op(const std::string& name, Phase phase, Work work, std::vector<Access> accesses) {
  add({name + suffix_, std::move(work), lane_, phase, std::move(accesses)});
}

void BlockWriter::collective(const std::string& name, Phase phase, CollectiveKind kind, std::int64_t elements,
                             std::vector<Access> accesses) {
  communicate(name, phase, shape_.tp, kind, elements, std::move(accesses));
}

void BlockWriter::communicate(const std::string& name, Phase phase, const Group& group, CollectiveKind kind,
                              std::int64_t elements, std::vector<Access> accesses) {
  communicate(collective_operation(name, group, kind, elements, phase, std::move(accesses)));
}

void BlockWriter::communicate(Operation operation) {
  operation.name += suffix_;
  add(std::move(operation));
}

void BlockWriter::exchange(const std::string& name, const std::string& suffix, Phase phase, const Group& ring,
                           int offset, View sent, View came) {
  const auto message = [&](bool is_send, View view) {
    const PointToPoint work{is_send, ring.communicator, is_send ? offset : -offset, view.rows * view.cols};
    add({name + (is_send ? ".send" : ".recv") + suffix,
         work,
         is_send ? shape_.cp.send : shape_.cp.recv,
         phase,
         {is_send ? read(view) : write(view)}});
  };
  message(true, std::move(sent));
  message(false, std::move(came));
  is_beside_.resize(block_.ops.size(), false);
  is_beside_.back() = true;
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
  // Two concurrent passes are a forward and a backward pass. Where weight gradients come behind the next
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

TensorId BlockWriter::output_gradient(const std::string& name, TensorId activation, const std::vector<bool>& with) {
  if (shape_.weights_in_units) return kept_gradient(name, activation, with);
  return workspace(name, schedule_.tensors[activation].rows, schedule_.tensors[activation].cols);
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
TensorId BlockWriter::workspace(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t slots,
                                Pool& pool) {
  std::vector<TensorPlace> places;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::string suffix = slots > 1 ? ".s" + std::to_string(slot) : "";
    if (pool.taken == pool.storages.size())
      pool.storages.push_back(add_storage(schedule_, name + suffix, dtype_, BufferKind::workspace, 0));
    const StorageId storage = pool.storages[pool.taken++];
    std::int64_t& elements = schedule_.storages[storage].elements;
    elements = std::max(elements, rows * cols);
    places.push_back({storage, 0});
  }
  return family(name, rows, cols, 1, slots, std::move(places));
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

View BlockWriter::gathered(const std::string& name, Phase phase, View part) {
  if (!shape_.sequence_parallel) return part;
  View all = gathering_place(suffix_.empty() ? phase : Phase::dgrad, part.cols);
  collective(name, phase, CollectiveKind::all_gather, all.rows * all.cols, {read(std::move(part)), write(all)});
  return all;
}

View BlockWriter::summed(const std::string& name, Phase phase, View partial, View part) {
  if (!shape_.tp.exists()) return partial;
  const std::int64_t elements = partial.rows * partial.cols;
  if (!shape_.sequence_parallel) {
    collective(name + ".all_reduce", phase, CollectiveKind::all_reduce, elements, {accumulate(partial)});
    return partial;
  }
  collective(name + ".reduce_scatter", phase, CollectiveKind::reduce_scatter, elements,
             {read(std::move(partial)), write(part)});
  return part;
}

std::string BlockWriter::label(const std::string& linear) const {
  return codes_ != nullptr && !in_codes_ && codes_->has(linear) ? linear + ".numbers" : linear;
}

void BlockWriter::column_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                                 std::optional<View> gelu_of_y) {
  if (in_codes_ && codes_->has(name)) return codes_->column_forward(name, x, y);
  x = gathered(label(name) + ".all_gather", Phase::forward, x);
  const bool bias = shape_.model.add_bias_linear;
  std::vector<Access> accesses = {read(std::move(x)), read(parameter(name + ".weight", Coord::layer))};
  if (bias) accesses.push_back(read(parameter(name + ".bias", Coord::layer)));
  accesses.push_back(write(std::move(y)));
  if (gelu_of_y) accesses.push_back(write(std::move(*gelu_of_y)));
  op(label(name) + ".fprop", Phase::forward,
     Gemm{tokens(), out, in, false, true, bias, gelu_of_y ? GemmEpilogue::gelu : GemmEpilogue::none},
     std::move(accesses));
}

void BlockWriter::column_part_forward(const std::string& name, const std::string& layer, std::int64_t first,
                                      std::int64_t in, std::int64_t out, View x, View y) {
  const bool bias = shape_.model.add_bias_linear;
  View weight = parameter(layer + ".weight", Coord::layer);
  weight.offset = weight.offset + Expr(first * weight.ld);
  weight.rows = out;
  std::vector<Access> accesses = {read(std::move(x)), read(std::move(weight))};
  if (bias) {
    View part = parameter(layer + ".bias", Coord::layer);
    part.offset = part.offset + Expr(first);
    part.cols = part.ld = out;
    accesses.push_back(read(std::move(part)));
  }
  accesses.push_back(write(std::move(y)));
  op(name + ".fprop", Phase::forward, Gemm{tokens(), out, in, false, true, bias}, std::move(accesses));
}

void BlockWriter::row_forward(const std::string& name, std::int64_t in, std::int64_t out, View x, View y,
                              std::optional<View> residual, const std::string& kind) {
  if (in_codes_ && codes_->has(name)) return codes_->row_forward(name, x, y);
  Gemm product{tokens(), out, in, false, true, false};
  std::vector<Access> accesses = {read(std::move(x)), read(parameter(name + ".weight", Coord::layer))};
  if (residual) {
    product.bias = shape_.model.add_bias_linear;
    product.epilogue = GemmEpilogue::residual;
    if (product.bias) accesses.push_back(read(parameter(name + ".bias", Coord::layer)));
    accesses.push_back(read(std::move(*residual)));
  }
  accesses.push_back(write(std::move(y)));
  op(label(name) + ".fprop" + kind, Phase::forward, product, std::move(accesses));
}

View BlockWriter::column_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy, View x, View dx,
                                  View dx_part, bool sums_bias) {
  if (in_codes_ && codes_->has(name)) return codes_->column_backward(name, dy, dx, dx_part);
  // Only the rows of this rank were kept, so all rows are gathered again.
  if (!weights_apart_ && !shape_.frozen_base)
    x = gathered(label(name) + ".all_gather_wgrad", Phase::wgrad, std::move(x));
  op(label(name) + ".dgrad", Phase::dgrad, Gemm{tokens(), in, out, false, false, false},
     {read(dy), read(parameter(name + ".weight", Coord::layer)), write(dx)});
  View sum = summed(label(name) + ".dgrad", Phase::dgrad, std::move(dx), std::move(dx_part));
  write_or_put_off({name, in, out, dy, x, sums_bias && shape_.model.add_bias_linear, dy});
  return sum;
}

void BlockWriter::row_backward(const std::string& name, std::int64_t in, std::int64_t out, View dy_part, View x,
                               View dx, std::optional<View> before_gelu, const std::string& bias_before_gelu) {
  if (in_codes_ && codes_->has(name)) return codes_->row_backward(name, dy_part, dx);
  const View dy = gathered(label(name) + ".all_gather_dgrad", Phase::dgrad, dy_part);
  std::vector<Access> accesses = {read(dy), read(parameter(name + ".weight", Coord::layer))};
  Gemm product{tokens(), in, out, false, false, false};
  if (before_gelu) {
    product.epilogue = GemmEpilogue::gelu_backward;
    accesses.push_back(read(std::move(*before_gelu)));
  }
  if (!bias_before_gelu.empty()) {
    product.epilogue = GemmEpilogue::gelu_backward_bias_gradient;
    accesses.push_back(accumulate(gradient(bias_before_gelu, Coord::layer)));
  }
  accesses.push_back(write(std::move(dx)));
  op(label(name) + ".dgrad", Phase::dgrad, product, std::move(accesses));
  write_or_put_off({name, in, out, weights_apart_ ? dy_part : dy, x, shape_.model.add_bias_linear, dy_part, true});
}

void BlockWriter::whole_forward(const std::string& name, const View& x, const View& y) {
  if (in_codes_ && codes_->has(name)) return codes_->row_forward(name, x, y);
  op(label(name) + ".fprop", Phase::forward, Gemm{x.rows, y.cols, x.cols, false, true, false},
     {read(x), read(parameter(name + ".weight", Coord::layer)), write(y)});
}

void BlockWriter::whole_backward(const std::string& name, const View& dy, const View& x, const Access& dx) {
  if (in_codes_ && codes_->has(name)) return codes_->whole_backward(name, dy, dx);
  op(label(name) + ".dgrad", Phase::dgrad, Gemm{x.rows, x.cols, dy.cols, false, false, false},
     {read(dy), read(parameter(name + ".weight", Coord::layer)), dx});
  weight_gradient(label(name) + ".wgrad", Gemm{dy.cols, x.cols, x.rows, true, false, false}, {read(dy), read(x)},
                  name + ".weight");
}

void BlockWriter::write_or_put_off(WeightGradient gradient) {
  if (shape_.frozen_base) return;
  gradient.label = label(gradient.name);
  if (!weights_apart_) return write_weight_gradient(gradient);
  put_off([this, gradient]() mutable {
    View& rows = gradient.gathers_dy ? gradient.dy : gradient.x;
    rows = gathered(gradient.label + ".all_gather_wgrad", Phase::wgrad, rows);
    write_weight_gradient(gradient);
  });
}

void BlockWriter::weight_gradient(const std::string& name, const Work& work, std::vector<Access> reads,
                                  const std::string& weight) {
  if (shape_.frozen_base) return;
  reads.push_back(accumulate(gradient(weight, Coord::layer)));
  const auto write = [this, name, work, reads] { op(name, Phase::wgrad, work, reads); };
  if (weights_apart_)
    put_off(write);
  else
    write();
}

void BlockWriter::write_weight_gradient(const WeightGradient& g) {
  Gemm product{g.out, g.in, tokens(), true, false, false};
  if (g.has_bias && shape_.bias_gradient_fusion && g.dy_bias.rows == tokens()) {
    product.epilogue = GemmEpilogue::bias_gradient;
    op(g.label + ".wgrad", Phase::wgrad, product,
       {read(g.dy), read(g.x), accumulate(gradient(g.name + ".bias", Coord::layer)),
        accumulate(gradient(g.name + ".weight", Coord::layer))});
    return;
  }
  op(g.label + ".wgrad", Phase::wgrad, product,
     {read(g.dy), read(g.x), accumulate(gradient(g.name + ".weight", Coord::layer))});
  if (g.has_bias)
    op(g.label + ".bgrad", Phase::wgrad, Elementwise{ElementwiseFn::column_sum, g.dy_bias.rows, g.out},
       {read(g.dy_bias), accumulate(gradient(g.name + ".bias", Coord::layer))});
}

View BlockWriter::dropout_key() const { return whole(schedule_, dropout_key_, Coord::layer, Coord::micro_batch); }

Dropout BlockWriter::hidden_dropout(Pass pass, DropoutSite site) const {
  const Transformer& model = shape_.model;
  return {.pass = pass,
          .rows = residual_rows(),
          .cols = model.hidden_size,
          .seq = model.seq_length,
          .probability = model.hidden_dropout,
          .site = site,
          .bias = false,
          .residual = false,
          .first_row = shape_.sequence_parallel ? shape_.tp.place * Expr(residual_rows()) : Expr(0),
          .rows_before = 0,
          .keeps_mask = false,
          .parts = shape_.parts()};
}

View BlockWriter::dropped(const std::string& name, View dc, View db, DropoutSite site) {
  if (!drops()) return dc;
  op(name, Phase::dgrad, hidden_dropout(Pass::dgrad, site), {read(std::move(dc)), read(dropout_key()), write(db)});
  return db;
}

void BlockWriter::attention(const std::string& name, Pass pass, std::vector<Access> accesses) {
  const Transformer& model = shape_.model;
  const std::int64_t heads = model.num_attention_heads / shape_.tp.size;
  if (model.attention_dropout > 0) accesses.push_back(read(dropout_key()));
  if (shape_.masks_documents) accesses.push_back(read(documents()));
  op(name, pass == Pass::forward ? Phase::forward : Phase::dgrad,
     Attention{pass,
               shape_.micro_batch_size,
               heads,
               model.kv_heads() / shape_.tp.size,
               model.seq_length,
               model.head_dim(),
               true,
               model.attention_dropout,
               shape_.tp.place * Expr(heads),
               {},
               {},
               false,
               model.latent.any() ? model.value_dim() : 0,
               model.latent.yarn.of_scores(),
               shape_.masks_documents,
               shape_.document_tokens},
     std::move(accesses));
}

void BlockWriter::residual(const std::string& name, const std::string& layer, View a, View b, View c,
                           DropoutSite site) {
  const bool bias = shape_.model.add_bias_linear;
  std::vector<Access> accesses = {read(std::move(a)), read(std::move(b))};
  if (bias) accesses.push_back(read(parameter(layer + ".bias", Coord::layer)));
  if (drops()) {
    Dropout work = hidden_dropout(Pass::forward, site);
    work.bias = bias;
    work.residual = true;
    accesses.insert(accesses.end(), {read(dropout_key()), write(std::move(c))});
    op(name, Phase::forward, work, std::move(accesses));
    return;
  }
  accesses.push_back(write(std::move(c)));
  op(name, Phase::forward,
     Elementwise{bias ? ElementwiseFn::bias_add : ElementwiseFn::add, residual_rows(), shape_.model.hidden_size},
     std::move(accesses));
}

Work BlockWriter::norm(Pass pass, const View& x, std::int64_t heads) const {
  const double epsilon = shape_.model.norm_epsilon;
  if (has_beta()) return LayerNorm{pass, x.rows, x.cols / heads, heads, epsilon};
  return RmsNorm{pass, x.rows, x.cols / heads, heads, epsilon};
}

void BlockWriter::norm_forward(const std::string& name, View x, View y, View stats, const Expr& layer,
                               std::int64_t heads) {
  const Work work = norm(Pass::forward, x, heads);
  std::vector<Access> accesses = {read(std::move(x)), read(parameter(name + ".weight", layer))};
  if (has_beta()) accesses.push_back(read(parameter(name + ".bias", layer)));
  accesses.push_back(write(std::move(y)));
  accesses.push_back(write(std::move(stats)));
  op(name + ".fprop", Phase::forward, work, std::move(accesses));
}

void BlockWriter::norm_backward(const std::string& name, View dy, View x, View stats, Access dx, const Expr& layer,
                                std::int64_t heads) {
  const std::vector<Access> in = {read(dy), read(x), read(stats)};
  std::vector<Access> weights = in, stream = in;
  stream.push_back(read(parameter(name + ".weight", layer)));
  if (shape_.frozen_base) {
    stream.push_back(std::move(dx));
    op(name + ".dgrad", Phase::dgrad, norm(Pass::dgrad, x, heads), std::move(stream));
    return;
  }
  auto& gradients = shape_.norm_gradient_fusion ? stream : weights;
  gradients.push_back(accumulate(gradient(name + ".weight", layer)));
  if (has_beta()) gradients.push_back(accumulate(gradient(name + ".bias", layer)));
  stream.push_back(std::move(dx));
  if (shape_.norm_gradient_fusion) {
    op(name + ".backward", Phase::dgrad, norm(Pass::backward, x, heads), std::move(stream));
    return;
  }
  op(name + ".wgrad", Phase::wgrad, norm(Pass::wgrad, x, heads), std::move(weights));
  op(name + ".dgrad", Phase::dgrad, norm(Pass::dgrad, x, heads), std::move(stream));
}

void BlockWriter::rope(const std::string& name, Phase phase, Pass pass, View qkv) {
  const Transformer& model = shape_.model;
  if (model.position_embedding_type != PositionEmbedding::rope) return;
  std::vector<Access> accesses = {accumulate(std::move(qkv))};
  if (shape_.resets_positions) accesses.push_back(read(documents()));
  op(name, phase,
     Rope{pass, tokens(), model.num_attention_heads / shape_.tp.size, model.kv_heads() / shape_.tp.size,
          model.seq_length, model.head_dim(), model.rotary_base, shape_.parts(), model.rope_scaling,
          shape_.resets_positions},
     std::move(accesses));
}

}  // namespace stretto
