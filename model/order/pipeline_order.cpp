#include "model/order/pipeline_order.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "model/order/dualpipe_v.hpp"
#include "model/order/pipeline_buffers.hpp"
#include "model/order/zero_bubble.hpp"

namespace stretto {
namespace {

// Writes 1F1B and interleaved 1F1B.
class Writer {
 public:
  Writer(const PipelineShape& shape, std::int64_t stage) : s_(shape), stage_(stage) {
    // Units come in groups of micro-batches, chunk by chunk.
    for (std::int64_t begin = 0; begin < s_.micro_batches; begin += s_.group) {
      const std::int64_t end = std::min(begin + s_.group, s_.micro_batches);
      for (std::int64_t chunk = 0; chunk < s_.chunks; ++chunk)
        for (std::int64_t mb = begin; mb < end; ++mb) {
          table_[0].push_back({UnitKind::forward, chunk, mb, 0, 0});
          table_[1].push_back({UnitKind::backward, s_.chunks - 1 - chunk, mb, 0, 0});
        }
    }
    total_ = static_cast<std::int64_t>(table_[0].size());
    const std::int64_t after = s_.stages - 1 - stage_;  // later stages
    const std::int64_t ahead = s_.chunks == 1 ? after : 2 * after + (s_.chunks - 1) * s_.group;
    warmup_ = std::min(ahead + s_.pairs_passes, total_);
  }

  std::vector<PipelineItem> run() {
    if (s_.overlap)
      write_overlapped();
    else if (s_.chunks == 1)
      write_1f1b();
    else
      write_interleaved();
    for (std::int64_t mb = 0; mb < std::min(s_.deferred, s_.micro_batches) && is_last(s_.chunks - 1); ++mb)
      items_.push_back({true, {UnitKind::weights, s_.chunks - 1, mb}, {}});
    return std::move(items_);
  }

 private:
  using Messages = std::vector<PipelineMessage>;
  static constexpr UnitKind kForward = UnitKind::forward, kBackward = UnitKind::backward;

  const PipelineUnit& unit(UnitKind direction, std::int64_t k) const {
    return table_[static_cast<int>(direction)][static_cast<std::size_t>(k)];
  }
  void compute(UnitKind direction, std::int64_t k) { items_.push_back({true, unit(direction, k), {}}); }
  void exchange(Messages messages) {
    if (!messages.empty()) items_.push_back({false, {}, std::move(messages)});
  }

  bool is_first(std::int64_t chunk) const { return s_.map().is_first(stage_, chunk); }
  bool is_last(std::int64_t chunk) const { return s_.map().is_last(stage_, chunk); }

  void add_send(Messages& to, UnitKind direction, std::int64_t k) const {
    const PipelineUnit& made = unit(direction, k);
    if (direction == kForward ? !is_last(made.chunk) : !is_first(made.chunk)) to.push_back({made, true});
  }

  // Returns the unit that arrives while this stage is between its steps `k` and `k + 1` of a direction: its neighbour
  // makes the unit meanwhile. A neighbour on the near side of the pipeline is a step ahead. The neighbour that closes
  // the ring of chunks is stages − 1 steps later, and its unit belongs to the previous chunk (forward) or the next
  // chunk (backward).
  std::optional<PipelineMessage> arriving(UnitKind direction, std::int64_t k) const {
    const bool closes_ring = direction == kForward ? stage_ == 0 : stage_ + 1 == s_.stages;
    if (!closes_ring) {
      if (k + 1 < 0 || k + 1 >= total_) return std::nullopt;
      return PipelineMessage{unit(direction, k + 1), false};
    }
    const std::int64_t made = k - (s_.stages - 1);
    if (s_.chunks == 1 || made < 0 || made >= total_) return std::nullopt;
    PipelineUnit needed = unit(direction, made);
    needed.chunk += direction == kForward ? 1 : -1;
    if (needed.chunk < 0 || needed.chunk >= s_.chunks) return std::nullopt;
    return PipelineMessage{needed, false};
  }
  void add_arriving(Messages& to, UnitKind direction, std::int64_t k) const {
    if (const auto message = arriving(direction, k)) to.push_back(*message);
  }
  void receive(UnitKind direction, std::int64_t k) {
    Messages messages;
    add_arriving(messages, direction, k);
    exchange(std::move(messages));
  }
  void send(UnitKind direction, std::int64_t k) {
    Messages messages;
    add_send(messages, direction, k);
    exchange(std::move(messages));
  }
  void exchange_both(UnitKind sent, std::int64_t k_sent, UnitKind received, std::int64_t k_received) {
    Messages messages;
    add_send(messages, sent, k_sent);
    add_arriving(messages, received, k_received);
    exchange(std::move(messages));
  }

  // Writes recv_forward, send_forward_recv_backward and so on. Each of these calls blocks.
  void write_1f1b() {
    const std::int64_t steady = total_ - warmup_;
    for (std::int64_t k = 0; k < warmup_; ++k) {
      receive(kForward, k - 1);
      compute(kForward, k);
      send(kForward, k);
    }
    if (steady > 0) receive(kForward, warmup_ - 1);
    for (std::int64_t i = 0; i < steady; ++i) {
      compute(kForward, warmup_ + i);
      items_.back().begins_pair = s_.pairs_passes;
      exchange_both(kForward, warmup_ + i, kBackward, i - 1);
      compute(kBackward, i);
      if (i + 1 < steady)
        exchange_both(kBackward, i, kForward, warmup_ + i);
      else
        send(kBackward, i);
    }
    for (std::int64_t i = steady; i < total_; ++i) {
      receive(kBackward, i - 1);
      compute(kBackward, i);
      send(kBackward, i);
    }
  }

  void write_interleaved() {
    const std::int64_t steady = total_ - warmup_;
    receive(kForward, -1);
    for (std::int64_t k = 0; k < warmup_; ++k) {
      compute(kForward, k);
      Messages messages;
      add_send(messages, kForward, k);
      add_arriving(messages, kForward, k);
      if (k + 1 == warmup_ && steady > 0) add_arriving(messages, kBackward, -1);
      exchange(std::move(messages));
    }
    for (std::int64_t i = 0; i < steady; ++i) {
      compute(kForward, warmup_ + i);
      items_.back().begins_pair = s_.pairs_passes;
      compute(kBackward, i);
      Messages messages;
      add_send(messages, kForward, warmup_ + i);
      add_arriving(messages, kForward, warmup_ + i);
      add_send(messages, kBackward, i);
      add_arriving(messages, kBackward, i);
      exchange(std::move(messages));
    }
    if (steady == 0) receive(kBackward, -1);
    for (std::int64_t i = steady; i < total_; ++i) {
      compute(kBackward, i);
      exchange_both(kBackward, i, kBackward, i);
    }
  }

  void write_overlapped() {
    const std::int64_t steady = total_ - warmup_;
    const auto step = [&](UnitKind direction, std::int64_t k, bool early) {
      if (early) receive(direction, k);
      compute(direction, k);
      items_.back().begins_pair = s_.pairs_passes && direction == kForward && k >= warmup_;
      send(direction, k);
      if (!early) receive(direction, k);
    };
    receive(kForward, -1);
    for (std::int64_t k = 0; k < warmup_; ++k) step(kForward, k, s_.overlap_warmup_flush);
    receive(kBackward, -1);
    for (std::int64_t i = 0; i < steady; ++i) {
      step(kForward, warmup_ + i, false);
      step(kBackward, i, false);
    }
    for (std::int64_t i = steady; i < total_; ++i) step(kBackward, i, s_.overlap_warmup_flush);
  }

  const PipelineShape& s_;
  const std::int64_t stage_;
  std::vector<PipelineUnit> table_[2];  // [direction]: the unit of each step
  std::int64_t total_ = 0, warmup_ = 0;
  std::vector<PipelineItem> items_;
};

}  // namespace

std::vector<PipelineOrder> pipeline_orders(const PipelineShape& shape) {
  std::vector<PipelineOrder> orders(static_cast<std::size_t>(shape.stages));
  if (is_zero_bubble(shape.schedule)) {
    std::vector<std::vector<PipelineItem>> items =
        shape.schedule == PipelineSchedule::dualpipe_v ? dualpipe_v_items(shape) : zero_bubble_items(shape);
    for (std::size_t stage = 0; stage < orders.size(); ++stage) orders[stage].items = std::move(items[stage]);
  } else {
    assert(shape.chunks == 1 || (shape.stages > 1 && shape.group >= shape.stages));
    for (std::size_t stage = 0; stage < orders.size(); ++stage)
      orders[stage].items = Writer(shape, static_cast<std::int64_t>(stage)).run();
  }
  for (std::size_t stage = 0; stage < orders.size(); ++stage)
    assign_buffers(shape, static_cast<std::int64_t>(stage), orders[stage]);
  return orders;
}

}  // namespace stretto
