#include "model/lower/stage_writer.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "model/lower/builder.hpp"

namespace stretto {
namespace {

// The latest use of a buffer by an operation of the step.
struct LastUse {
  OpAddress op;
  LaneId lane = 0;
};

class StageWriter {
 public:
  StageWriter(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
              const BlockShape& shape, std::int64_t stage, std::vector<Call>& calls)
      : schedule_(schedule), blocks_(blocks), messages_(messages), shape_(shape), stage_(stage), calls_(calls) {}

  void run(const PipelineOrder& order) {
    for (const PipelineItem& item : order.items) {
      if (item.is_compute)
        compute(item.unit);
      else if (messages_.overlap)
        for (const PipelineMessage& message : item.messages) issue(message);
      else
        exchange(item.messages);
    }
    // What was put off does not wait for the last messages.
    for (const PipelineUnit& unit : deferred_) {
      Call& late = call(blocks_.head_wgrad, unit);
      late.sequence = kDeferredSequence;
      if (&unit == deferred_.data() && schedule_.operations[computed_.op].lane != lane_of(late))
        late.waits.push_back(after(computed_));
    }
    // What a step uses first, the step before has used last.
    for (const auto& [key, call] : first_)
      if (const LastUse& last = last_.at(key); last.lane != lane_of(calls_[call]))
        calls_[call].waits.push_back(after(last.op, 1));
  }

 private:
  static constexpr std::uint8_t kDeferredSequence = kSequence + 1;
  enum class Buffer : std::uint8_t { slot, output, gradient };
  using Key = std::tuple<Buffer, std::int64_t, std::int64_t>;  // which, chunk (of slots), number

  static Edge after(OpAddress op, int steps_ago = 0) {
    op.steps_ago = steps_ago;
    return {EdgeKind::finish_start, op};
  }
  LaneId lane_of(const Call& call) const {
    return schedule_.operations[schedule_.blocks[call.block].ops[call.first]].lane;
  }
  OpAddress last_of(const Call& call) const {
    return {schedule_.blocks[call.block].ops[call.first + call.count - 1], call.layer, call.micro_batch, call.chunk, 0};
  }
  const ModelChunk& chunk_of(const PipelineUnit& unit) const {
    return shape_.chunks[static_cast<std::size_t>(shape_.map.piece_of(stage_, unit.chunk))];
  }
  bool needs_message(const PipelineUnit& unit) const {
    return unit.direction == Direction::forward ? !chunk_of(unit).has_embedding : !chunk_of(unit).has_head;
  }
  bool makes_message(const PipelineUnit& unit) const {
    return unit.direction == Direction::forward ? !chunk_of(unit).has_head : !chunk_of(unit).has_embedding;
  }

  Call& call(BlockId block, const PipelineUnit& unit, std::int64_t layer = 0) {
    calls_.push_back(call_block(schedule_, block, layer, unit.micro_batch));
    calls_.back().chunk = unit.chunk;
    calls_.back().slot = unit.slot;
    calls_.back().buffer = unit.buffer;
    calls_.back().sequence = kSequence;
    return calls_.back();
  }

  // ---- compute ----

  void compute(const PipelineUnit& unit) {
    const std::size_t first = calls_.size();
    if (unit.direction == Direction::forward)
      forward(unit);
    else
      backward(unit);
    computed_ = last_of(calls_.back());
    if (!messages_.overlap) return;
    if (makes_message(unit)) made_[key_of(unit)] = computed_;
    if (const auto received = received_.find(key_of(unit)); received != received_.end()) {
      calls_[first].waits.push_back(after(received->second));
      received_.erase(received);
    }
    if (const auto sent = sent_.find(unit.micro_batch);
        sent != sent_.end() && unit.direction == Direction::backward && chunk_of(unit).layers() == 0) {
      calls_[first].waits.push_back(after(sent->second));
      sent_.erase(sent);
    }
    if (unit.direction == Direction::forward) {
      if (!needs_message(unit)) acquire({Buffer::slot, unit.chunk, unit.slot}, first);
      if (makes_message(unit)) acquire({Buffer::output, 0, unit.buffer}, first);
      // It keeps its activations: the last use of the slot is backward's.
    } else {
      if (!needs_message(unit)) acquire({Buffer::gradient, 0, unit.buffer}, first);
      use({Buffer::gradient, 0, unit.buffer}, calls_.back());
      use({Buffer::slot, unit.chunk, unit.slot}, calls_.back());
    }
  }

  void forward(const PipelineUnit& unit) {
    const ModelChunk& chunk = chunk_of(unit);
    if (chunk.has_embedding) call(blocks_.embedding_forward, unit);
    for (std::int64_t layer = chunk.first_layer; layer < chunk.end_layer; ++layer)
      call(blocks_.layer_forward, unit, layer);
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
        call(blocks_.layer_backward, unit, begin);
      }
      end = begin;
    }
    if (chunk.has_embedding) call(blocks_.embedding_backward, unit);
  }

  void head_backward(const PipelineUnit& unit) {
    call(blocks_.head_backward, unit);
    if (unit.micro_batch < shape_.deferred)
      deferred_.push_back(unit);
    else if (shape_.deferred > 0)
      call(blocks_.head_wgrad, unit);
  }

  // Backward of layers [begin, end), which are recomputed together: forward again, of the last only what it needs.
  void recompute_layers(const PipelineUnit& unit, std::int64_t begin, std::int64_t end) {
    for (std::int64_t layer = begin; layer < end; ++layer) {
      Call& again = call(blocks_.layer_recompute, unit, layer);
      again.buffer = 0;  // of outputs, none of which it writes; the unit's is of gradients
      if (layer + 1 == end) again.count = blocks_.recompute_inner;
    }
    for (std::int64_t layer = end; layer-- > begin;) call(blocks_.layer_backward, unit, layer);
  }

  // ---- messages ----

  BlockId block_of(const PipelineMessage& message) const {
    if (message.unit.direction == Direction::forward)
      return message.is_send ? messages_.send_forward : messages_.recv_forward;
    return message.is_send ? messages_.send_backward : messages_.recv_backward;
  }

  void exchange(const std::vector<PipelineMessage>& messages) {
    for (const PipelineMessage& message : messages) {
      Call& posted = call(block_of(message), message.unit);
      const bool is_first = &message == messages.data();
      posted.joined = messages_.is_batched && !is_first;
      posted.beside = !is_first;
    }
  }

  void issue(const PipelineMessage& message) {
    const PipelineUnit& unit = message.unit;
    const bool is_forward = unit.direction == Direction::forward;
    const Key buffer =
        is_forward ? message.is_send ? Key{Buffer::output, 0, unit.buffer} : Key{Buffer::slot, unit.chunk, unit.slot}
                   : Key{Buffer::gradient, 0, unit.buffer};
    Call& posted = call(block_of(message), unit);
    posted.sequence = 0;
    if (message.is_send) {
      posted.waits.push_back(after(made_.extract(key_of(unit)).mapped()));
      // What an embedding alone sends is in its slot, which backward gives back.
      if (is_forward && chunk_of(unit).layers() == 0) sent_[unit.micro_batch] = last_of(posted);
    } else {
      acquire(buffer, calls_.size() - 1);
      received_[key_of(unit)] = last_of(posted);
    }
    use(buffer, posted);
  }

  static std::tuple<Direction, std::int64_t, std::int64_t> key_of(const PipelineUnit& unit) {
    return {unit.direction, unit.chunk, unit.micro_batch};
  }
  // A call overwrites a buffer that others may still be using.
  void acquire(const Key& key, std::size_t call) {
    const auto last = last_.find(key);
    if (last == last_.end())
      first_.try_emplace(key, call);
    else if (last->second.lane != lane_of(calls_[call]))
      calls_[call].waits.push_back(after(last->second.op));
  }
  void use(const Key& key, const Call& call) { last_[key] = {last_of(call), lane_of(call)}; }

  const Schedule& schedule_;
  const ModelBlocks& blocks_;
  const PipelineBlocks& messages_;
  const BlockShape& shape_;
  const std::int64_t stage_;
  std::vector<Call>& calls_;
  OpAddress computed_;                                                               // last
  std::map<std::tuple<Direction, std::int64_t, std::int64_t>, OpAddress> made_;      // overlap: and is still to be sent
  std::map<std::tuple<Direction, std::int64_t, std::int64_t>, OpAddress> received_;  // overlap: and are still needed
  std::vector<PipelineUnit> deferred_;                                               // whose head.wgrad is to come
  std::map<std::int64_t, OpAddress> sent_;  // overlap: by an embedding alone, of micro-batches before their backward
  std::map<Key, LastUse> last_;
  std::map<Key, std::size_t> first_;  // → index into calls
};

}  // namespace

PipelineBlocks add_pipeline_blocks(Schedule& schedule, const ModelBlocks& blocks, const BlockShape& shape,
                                   bool is_batched, bool overlap) {
  const auto add_lane = [&](const std::string& name) {
    schedule.lanes.push_back({name, LaneKind::communication, 0});
    return static_cast<LaneId>(schedule.lanes.size() - 1);
  };
  const auto add_communicator = [&](const std::string& name) {
    schedule.communicators.push_back({name, {Coord::pp}, CommEngine::nic, 1, shape.map.stages});
    return static_cast<std::uint32_t>(schedule.communicators.size() - 1);
  };
  const std::uint32_t forward = add_communicator("pp.forward"), backward = add_communicator("pp.backward");
  const LaneId batched = is_batched ? add_lane("pp") : LaneId{0};
  const Expr chunk = shape.map.piece_of(Expr(Coord::pp), Expr(Coord::chunk));
  const Expr out = Expr(Coord::slot) * Expr(shape.output_buffers) + Expr(Coord::buffer);
  const auto message = [&](const std::string& name, Phase phase, bool is_send, std::uint32_t communicator,
                           std::int64_t offset, View view) {
    const PointToPoint work{is_send, communicator, offset, view.rows * view.cols};
    const LaneId lane = is_batched ? batched : add_lane("pp." + name);
    return add_single(schedule, {"pp." + name, work, lane, phase, {is_send ? read(view) : write(view)}});
  };
  const View input = whole(schedule, blocks.chunk_input, chunk, Coord::slot),
             output = whole(schedule, blocks.chunk_output, chunk, out),
             gradient = whole(schedule, blocks.gradient, 0, Coord::buffer);
  PipelineBlocks result;
  result.is_batched = is_batched;
  result.overlap = overlap;
  result.send_forward = message("send_forward", Phase::forward, true, forward, 1, output);
  result.recv_forward = message("recv_forward", Phase::forward, false, forward, -1, input);
  result.send_backward = message("send_backward", Phase::dgrad, true, backward, -1, gradient);
  result.recv_backward = message("recv_backward", Phase::dgrad, false, backward, 1, gradient);
  return result;
}

void append_pipeline(const Schedule& schedule, const ModelBlocks& blocks, const PipelineBlocks& messages,
                     const BlockShape& shape, std::int64_t stage, const PipelineOrder& order,
                     std::vector<Call>& calls) {
  StageWriter(schedule, blocks, messages, shape, stage, calls).run(order);
}

}  // namespace stretto
