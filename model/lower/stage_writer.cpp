#include "model/lower/stage_writer.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

class StageWriter {
 public:
  StageWriter(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
              const BlockShape& shape, std::int64_t stage, std::vector<Call>& calls)
      : schedule_(schedule), blocks_(blocks), messages_(messages), shape_(shape), stage_(stage), calls_(calls) {}

  void run(const PipelineOrder& order) {
    for (std::size_t i = 0; i < order.items.size(); ++i) {
      const PipelineItem& item = order.items[i];
      if (item.begins_pair) {
        const auto other = std::find_if(order.items.begin() + std::ptrdiff_t(i) + 1, order.items.end(),
                                        [](const PipelineItem& next) { return next.is_compute; });
        pair(&item.unit, other->unit);
        paired_with_ = &*other;
      } else if (&item == paired_with_)
        continue;
      else if (item.is_compute)
        compute(item.unit);
      else if (messages_.overlap)
        for (const PipelineMessage& message : item.messages) issue(message);
      else
        exchange(item.messages);
    }
  }

 private:
  static constexpr std::uint8_t kDeferredSequence = kSequence + 1, kBackwardSequence = kSequence + 2,
                                kWeightsSequence = kSequence + 3;
  LaneId lane_of(const Call& call) const {
    return schedule_.operations[schedule_.blocks[call.block].ops[call.first]].lane;
  }
  OpAddress last_of(const Call& call) const {
    return {schedule_.blocks[call.block].ops[call.first + call.count - 1], call.layer, call.micro_batch, call.chunk, 0};
  }
  const ModelChunk& chunk_of(const PipelineUnit& unit) const {
    return shape_.chunks[static_cast<std::size_t>(shape_.map.piece_of(stage_, unit.chunk))];
  }
  const LayerBlocks& layer_of(std::int64_t layer) const {
    return blocks_.layers[shape_.kind_of_layer[static_cast<std::size_t>(layer)]];
  }
  Call& call(BlockId block, const PipelineUnit& unit, std::int64_t layer = 0) {
    calls_.push_back(call_block(schedule_, block, layer, unit.micro_batch));
    calls_.back().chunk = unit.chunk;
    calls_.back().slot = unit.slot;
    calls_.back().buffer = unit.buffer;
    calls_.back().sequence = kSequence;
    return calls_.back();
  }

  // ---- pairs ----

  // A layer's calls, cut where rows of experts are on the way: the computation before they leave, the dispatch, the
  // experts, the combine, and the computation after it. Other blocks have only the first.
  struct Cut {
    Call before, dispatch, experts, combine, after;
  };
  Cut cut(const Call& call) const {
    const std::vector<OpId>& ops = schedule_.blocks[call.block].ops;
    const auto next = [&](std::uint32_t from, CollectiveKind kind, bool is_kind) {
      while (from < call.first + call.count) {
        const auto* collective = std::get_if<Collective>(&schedule_.operations[ops[from]].work);
        if ((collective != nullptr && collective->kind == kind) == is_kind) break;
        ++from;
      }
      return from;
    };
    const std::uint32_t end = call.first + call.count, leave = next(call.first, CollectiveKind::dispatch, true),
                        came = next(leave, CollectiveKind::dispatch, false),
                        turn = next(came, CollectiveKind::combine, true),
                        back = next(turn, CollectiveKind::combine, false);
    const auto part = [&](std::uint32_t from, std::uint32_t to) {
      Call one = call;
      one.first = from;
      one.count = to - from;
      return one;
    };
    return {part(call.first, leave), part(leave, came), part(came, turn), part(turn, back), part(back, end)};
  }

  // Returns the calls of a pass, which it takes from the end of the program.
  std::vector<Call> calls_of(const PipelineUnit& unit) {
    const std::size_t first = calls_.size();
    if (unit.kind == UnitKind::forward)
      forward(unit);
    else
      backward(unit);
    std::vector<Call> calls(calls_.begin() + std::ptrdiff_t(first), calls_.end());
    calls_.resize(first);
    if (const auto received = received_.find(key_of(unit)); received != received_.end()) {
      calls.front().waits.push_back({EdgeKind::finish_start, received->second});
      received_.erase(received);
    }
    return calls;
  }

  // Writes a backward pass and a forward pass, unless that is null, as concurrent sequences. Of layer i of the forward
  // pass and of the i-th layer from the end of the backward pass, the host issues first what must leave, and then the
  // other pass's computation, which hides it; weight gradients that are apart come after what the other pass and the
  // other ranks wait for:
  //   forward: before   backward: experts   forward: dispatch   backward: weights of experts, combine
  //   forward: experts, combine   backward: after; before and dispatch of the next layer; other weights
  //   forward: after
  // Example: two layers, the layers of the backward pass are b0 and b1 in its order, and each part takes 1:
  //   time         0          1           2           3          4          5         6           7
  //   computation  b0.before  f0.before   b0.experts  f0.experts b0.after   b1.before f0.after    f1.before
  //   exchange                b0.dispatch f0.dispatch b0.combine f0.combine           b1.dispatch
  //   time         8           9          10         11
  //   computation  b1.experts  f1.experts b1.after   f1.after
  //   exchange     f1.dispatch b1.combine f1.combine
  // 12 instead of the 20 of both passes alone: every exchange is concurrent with the other pass's computation.
  // With attention_early `after` of the backward pass comes before the experts of the forward pass. This is
  // Megatron-LM's order (core/models/common/model_chunk_schedule_plan.py), where unpermute is on the communication
  // stream, so that the next layer's rows leave as early there.
  void pair(const PipelineUnit* ahead, const PipelineUnit& back) {
    std::vector<Call> forward, backward = calls_of(back);
    const auto wait = [](Call& call, const OpAddress& on) { call.waits.push_back({EdgeKind::finish_start, on}); };
    if (ahead != nullptr) {
      forward = calls_of(*ahead);
      for (Call& call : backward) call.sequence = kBackwardSequence;
      // The forward pass takes the slot of an earlier backward pass.
      if (paired_) wait(forward.front(), *paired_);
      wait(backward.front(), forward_ends_.at({back.chunk, back.micro_batch}));
      forward_ends_[{ahead->chunk, ahead->micro_batch}] = last_of(forward.back());
    } else if (paired_) {
      wait(backward.front(), *std::exchange(paired_, std::nullopt));
    }
    OpAddress back_end;
    const auto put = [&](const Call& call, bool is_first = false) {
      if (call.count == 0) return;
      calls_.push_back(call);
      if (!is_first) calls_.back().waits.clear();
      if (call.sequence == backward.front().sequence) back_end = last_of(call);
    };
    const auto is_layer = [&](const Call& call) {
      return std::any_of(blocks_.layers.begin(), blocks_.layers.end(), [&](const LayerBlocks& layer) {
        return call.block == layer.forward || call.block == layer.backward;
      });
    };
    const auto put_ends = [&](const std::vector<Call>& calls, std::size_t& next) {
      while (next < calls.size() && !is_layer(calls[next])) put(calls[next++], true);
    };
    std::size_t f = 0, b = 0;
    std::optional<Cut> there, here;  // the layer of the forward and of the backward pass
    const auto take = [&](const std::vector<Call>& calls, std::size_t& next) {
      return next < calls.size() && is_layer(calls[next]) ? std::optional(cut(calls[next++])) : std::nullopt;
    };
    put_ends(forward, f);
    put_ends(backward, b);
    if ((here = take(backward, b))) put(here->before, true), put(here->dispatch);
    while (here || f < forward.size()) {
      Weights weights;
      if (here) weights = weights_of(here->before);
      if ((there = take(forward, f))) put(there->before, true);
      if (here) put(here->experts);
      if (there) put(there->dispatch);
      put(weights.experts);
      if (here) put(here->combine);
      if (here && shape_.attention_early) put(here->after);
      if (there) put(there->experts), put(there->combine);
      if (here && !shape_.attention_early) put(here->after);
      here = take(backward, b);
      if (here && here->dispatch.count > 0) {
        put(here->before, true), put(here->dispatch);
        // They wait for what they read and overwrite; other lanes do not know that `before` is over.
        if (weights.others.count > 0 && lane_of(weights.others) != lane_of(here->experts))
          wait(weights.others, last_of(here->before));
        put(weights.others, true);
      } else {
        weights.others.sequence = backward.front().sequence;
        put(weights.others);
        if (here) put(here->before, true);
      }
      if (there) put(there->after);
      put_ends(forward, f);
      if (!here) put_ends(backward, b);
    }
    computed_ = back_end;
    if (ahead != nullptr) paired_ = back_end;
  }

  // The weight gradients of a layer, where blocks of their own have them: of experts on ranks that exchange rows, and
  // the others.
  struct Weights {
    Call experts, others;
  };
  Weights weights_of(const Call& backward) const {
    Weights weights;
    if (!shape_.weights_apart) return weights;
    const BlockId block = layer_of(backward.layer).wgrad;
    const std::vector<OpId>& ops = schedule_.blocks[block].ops;
    weights.others = backward;
    weights.others.waits.clear();
    weights.others.block = block;
    weights.others.first = 0;
    weights.others.count = std::uint32_t(ops.size());
    weights.others.sequence = kWeightsSequence;
    weights.experts = weights.others;
    weights.experts.count = 0;
    while (weights.experts.count < ops.size() &&
           std::holds_alternative<GroupedGemm>(schedule_.operations[ops[weights.experts.count]].work))
      ++weights.experts.count;
    weights.others.first = weights.experts.count;
    weights.others.count -= weights.experts.count;
    return weights;
  }

  // ---- compute ----

  void compute(const PipelineUnit& unit) {
    const std::size_t first = calls_.size();
    if (unit.kind == UnitKind::weights) return shape_.weights_in_units ? weights(unit) : defer(unit);
    if (unit.kind == UnitKind::backward && shape_.weights_apart && !shape_.weights_in_units) return pair(nullptr, unit);
    const auto received = received_.find(key_of(unit));
    if (shape_.scatters_messages && received != received_.end())
      call(unit.kind == UnitKind::forward ? messages_.gather_forward : messages_.gather_backward, unit);
    if (unit.kind == UnitKind::forward)
      forward(unit);
    else
      backward(unit);
    if (calls_.size() == first) return;  // the backward pass of a frozen embedding is empty
    computed_ = last_of(calls_.back());
    if (unit.kind == UnitKind::forward) forward_ends_[{unit.chunk, unit.micro_batch}] = computed_;
    // All that follows pairs waits for them.
    if (paired_) calls_[first].waits.push_back({EdgeKind::finish_start, *std::exchange(paired_, std::nullopt)});
    if (received == received_.end()) return;
    if (messages_.overlap) calls_[first].waits.push_back({EdgeKind::finish_start, received->second});
    received_.erase(received);
  }

  void forward(const PipelineUnit& unit) {
    const ModelChunk& chunk = chunk_of(unit);
    if (chunk.has_embedding) call(blocks_.embedding_forward, unit);
    for (std::int64_t layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
      if (const auto& weights = layer_of(layer).quantise_weights; weights && unit.micro_batch == 0)
        call(*weights, unit, layer);
      call(layer_of(layer).forward, unit, layer);
    }
    if (blocks_.update_forward && chunk.layers() > 0) call(*blocks_.update_forward, unit);
    if (chunk.has_head) call(blocks_.head_forward, unit);
  }

  void backward(const PipelineUnit& unit) {
    const ModelChunk& chunk = chunk_of(unit);
    const Recompute& recompute = shape_.recompute;
    if (chunk.has_head) head_backward(unit);
    for (std::int64_t end = chunk.end_layer; end > chunk.first_layer;) {
      std::int64_t begin = end - 1;
      const std::int64_t in_chunk = begin - chunk.first_layer;
      if (recompute.is_full(in_chunk)) {
        begin -= in_chunk % recompute.group();
        recompute_layers(unit, begin, end);
      } else {
        if (recompute.granularity == Recompute::Granularity::selective_op)
          call(layer_of(begin).recompute, unit, begin).buffer = 0;
        call(layer_of(begin).backward, unit, begin);
      }
      end = begin;
    }
    if (blocks_.update_backward && chunk.layers() > 0) call(*blocks_.update_backward, unit);
    if (chunk.has_embedding && !shape_.frozen_base) call(blocks_.embedding_backward, unit);
  }

  void head_backward(const PipelineUnit& unit) {
    call(blocks_.head_backward, unit);
    if (shape_.deferred > 0 && unit.micro_batch >= shape_.deferred) call(blocks_.head_wgrad, unit);
  }

  void weights(const PipelineUnit& unit) {
    const ModelChunk& chunk = chunk_of(unit);
    if (chunk.has_head) call(blocks_.head_wgrad, unit);
    for (std::int64_t layer = chunk.end_layer; layer-- > chunk.first_layer;) call(layer_of(layer).wgrad, unit, layer);
  }

  // Deferred weight gradients come after all other computation and do not wait for the last messages.
  void defer(const PipelineUnit& unit) {
    Call& late = call(blocks_.head_wgrad, unit);
    late.sequence = kDeferredSequence;
    if (unit.micro_batch == 0 && schedule_.operations[computed_.op].lane != lane_of(late))
      late.waits.push_back({EdgeKind::finish_start, computed_});
  }

  // Writes the backward pass of layers [begin, end), which are recomputed together: their forward passes again, of the
  // last layer only the operations that its backward pass needs.
  void recompute_layers(const PipelineUnit& unit, std::int64_t begin, std::int64_t end) {
    for (std::int64_t layer = begin; layer < end; ++layer) {
      Call& again = call(layer_of(layer).recompute, unit, layer);
      again.buffer = 0;  // a buffer of outputs, and it writes none of them; the unit's buffer is one of gradients
      if (layer + 1 == end) again.count = layer_of(layer).recompute_inner;
    }
    for (std::int64_t layer = end; layer-- > begin;) call(layer_of(layer).backward, unit, layer);
  }

  // ---- messages ----

  BlockId block_of(const PipelineMessage& message) const {
    const MessageBlocks& blocks = messages_.of_chunk(message.unit.chunk);
    if (message.unit.kind == UnitKind::forward) return message.is_send ? blocks.send_forward : blocks.recv_forward;
    return message.is_send ? blocks.send_backward : blocks.recv_backward;
  }

  void exchange(const std::vector<PipelineMessage>& messages) {
    for (const PipelineMessage& message : messages) {
      Call& posted = call(block_of(message), message.unit);
      const bool is_first = &message == messages.data();
      posted.joined = messages_.is_batched && !is_first;
      posted.concurrent = !is_first;
      note_received(message, posted);
    }
  }

  // A send waits for the operation that made its data, and a receive for the last use of its buffer. Both waits follow
  // from data.
  void issue(const PipelineMessage& message) {
    Call& posted = call(block_of(message), message.unit);
    posted.sequence = 0;
    note_received(message, posted);
  }

  void note_received(const PipelineMessage& message, const Call& posted) {
    if (!message.is_send) received_[key_of(message.unit)] = last_of(posted);
  }

  static std::tuple<UnitKind, std::int64_t, std::int64_t> key_of(const PipelineUnit& unit) {
    return {unit.kind, unit.chunk, unit.micro_batch};
  }
  const Schedule& schedule_;
  const ModelBlocks& blocks_;
  const PipelineBlocks& messages_;
  const BlockShape& shape_;
  const std::int64_t stage_;
  std::vector<Call>& calls_;
  const PipelineItem* paired_with_ = nullptr;                                       // the second item of the last pair
  std::optional<OpAddress> paired_;                                                 // the end of its backward pass
  std::map<std::pair<std::int64_t, std::int64_t>, OpAddress> forward_ends_;         // (chunk, micro-batch)
  OpAddress computed_;                                                              // the last compute operation
  std::map<std::tuple<UnitKind, std::int64_t, std::int64_t>, OpAddress> received_;  // receives that are not used yet
};

}  // namespace

PipelineBlocks add_pipeline_blocks(Schedule& schedule, const ModelBlocks& blocks, const BlockShape& shape,
                                   bool is_batched, bool overlap) {
  const LaneId batched = is_batched ? add_communication_lane(schedule, "pp") : LaneId{0};
  const Expr chunk = shape.map.piece_of(Expr(Coord::pp), Expr(Coord::chunk));
  const Expr out = Expr(Coord::slot) * Expr(shape.output_buffers) + Expr(Coord::buffer);
  // Returns the rank's tokens of a view of all tokens.
  const auto part_of = [&](View view) {
    view.rows /= shape.tp.size;
    view.offset = view.offset + shape.tp.place * Expr(view.rows * view.ld);
    return view;
  };
  const auto message = [&](const std::string& name, Phase phase, bool is_send, const Group& group, std::int64_t offset,
                           View view) {
    if (shape.scatters_messages) view = part_of(view);
    const PointToPoint work{is_send, group.communicator, offset, view.rows * view.cols};
    const LaneId lane = is_batched ? batched : add_communication_lane(schedule, "pp." + name);
    return add_single(schedule, {"pp." + name, work, lane, phase, {is_send ? read(view) : write(view)}});
  };
  const View input = whole(schedule, blocks.chunk_input, chunk, Coord::slot),
             output = whole(schedule, blocks.chunk_output, chunk, out),
             gradient = whole(schedule, blocks.gradient, 0, Coord::buffer);
  PipelineBlocks result;
  result.is_batched = is_batched;
  result.overlap = overlap;
  for (std::int64_t of = 0; of < (shape.map.in_v ? 2 : 1); ++of) {
    const std::string suffix = of == 0 ? "" : "." + std::to_string(of);
    const Group forward = add_group(schedule, "pp.forward" + suffix, {Coord::pp}, batched),
                backward = add_group(schedule, "pp.backward" + suffix, {Coord::pp}, batched);
    const std::int64_t way = shape.map.way(of);
    result.ways.push_back({message("send_forward" + suffix, Phase::forward, true, forward, way, output),
                           message("recv_forward" + suffix, Phase::forward, false, forward, -way, input),
                           message("send_backward" + suffix, Phase::dgrad, true, backward, -way, gradient),
                           message("recv_backward" + suffix, Phase::dgrad, false, backward, way, gradient)});
  }
  if (!shape.scatters_messages) return result;
  const auto gather = [&](const std::string& name, Phase phase, const View& view) {
    return add_single(schedule, collective_operation("pp." + name, shape.tp, CollectiveKind::all_gather,
                                                     view.rows * view.cols, phase, {read(part_of(view)), write(view)}));
  };
  result.gather_forward = gather("gather_forward", Phase::forward, input);
  result.gather_backward = gather("gather_backward", Phase::dgrad, gradient);
  return result;
}

void append_pipeline(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
                     const BlockShape& shape, std::int64_t stage, const PipelineOrder& order,
                     std::vector<Call>& calls) {
  StageWriter(schedule, blocks, messages, shape, stage, calls).run(order);
}

}  // namespace stretto
