#include "model/lower/zero_bubble.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace stretto {
namespace {

struct Stage {
  std::vector<PipelineUnit> pattern;  // F and B
  std::size_t next = 0;
  std::int64_t forwards = 0;         // of the first chunk, done
  std::int64_t held = 0;             // micro-batches of chunks between F and W
  std::deque<PipelineUnit> waiting;  // W whose B is done
};

struct Timed {
  std::int64_t tick = 0;  // it begins then
  PipelineUnit unit;
};

std::vector<PipelineUnit> pattern_of(const PipelineShape& s, std::int64_t stage) {
  const std::int64_t period = 2 * s.chunks, last = s.stages - 1;
  std::vector<Timed> units;
  std::int64_t begin = 0;
  for (std::int64_t pass = 0; pass < period; ++pass) {
    const bool down = pass % 2 == 0, is_forward = pass < s.chunks;
    const std::int64_t chunk = is_forward ? pass : period - 1 - pass, a_stage = down ? 1 : period - 1;
    for (std::int64_t mb = 0; mb < s.micro_batches; ++mb)
      units.push_back({begin + a_stage * (down ? stage : last - stage) + mb * period,
                       {is_forward ? UnitKind::forward : UnitKind::backward, chunk, mb}});
    begin += a_stage * last + 1;
  }
  std::sort(units.begin(), units.end(), [](const Timed& a, const Timed& b) { return a.tick < b.tick; });
  std::vector<PipelineUnit> pattern;
  for (const Timed& timed : units) pattern.push_back(timed.unit);
  return pattern;
}

class Clockwork {
 public:
  explicit Clockwork(const PipelineShape& shape) : s_(shape), map_(shape.map()), orders_(stages_of(shape)) {
    for (auto& done : done_) done.resize(static_cast<std::size_t>(map_.pieces() * s_.micro_batches));
    for (std::int64_t stage = 0; stage < s_.stages; ++stage) stages_.emplace_back().pattern = pattern_of(s_, stage);
  }

  // [stage]
  std::vector<std::vector<Timed>> run() {
    const auto units = static_cast<std::size_t>(3 * s_.chunks * s_.micro_batches);
    const auto is_over = [&](const std::vector<Timed>& order) { return order.size() == units; };
    for (std::int64_t tick = 0; !std::all_of(orders_.begin(), orders_.end(), is_over); ++tick) {
      std::vector<std::optional<PipelineUnit>> begun;
      for (std::int64_t stage = 0; stage < s_.stages; ++stage) begun.push_back(begin(stage));
      for (std::int64_t stage = 0; stage < s_.stages; ++stage)
        if (const auto& unit = begun[static_cast<std::size_t>(stage)]) finish(stage, tick, *unit);
    }
    return std::move(orders_);
  }

 private:
  static std::size_t stages_of(const PipelineShape& shape) { return static_cast<std::size_t>(shape.stages); }
  std::vector<bool>::reference done(UnitKind kind, std::int64_t piece, std::int64_t micro_batch) {
    return done_[static_cast<int>(kind)][static_cast<std::size_t>(piece * s_.micro_batches + micro_batch)];
  }

  bool is_ready(std::int64_t stage, const PipelineUnit& unit) {
    const std::int64_t piece = map_.piece_of(stage, unit.chunk), mb = unit.micro_batch;
    if (unit.kind == UnitKind::forward)
      return at(stage).held < map_.pieces() && (piece == 0 || done(UnitKind::forward, piece - 1, mb));
    return done(UnitKind::forward, piece, mb) &&
           (piece + 1 == map_.pieces() || done(UnitKind::backward, piece + 1, mb));
  }

  std::optional<PipelineUnit> begin(std::int64_t stage) {
    Stage& here = at(stage);
    const auto is_early = [&](const PipelineUnit& unit) {  // it was done before its turn
      return unit.kind == UnitKind::forward && unit.chunk == 0 && unit.micro_batch < here.forwards;
    };
    while (here.next < here.pattern.size() && is_early(here.pattern[here.next])) ++here.next;
    if (here.next < here.pattern.size() && is_ready(stage, here.pattern[here.next])) return here.pattern[here.next++];
    if (!here.waiting.empty()) {
      const PipelineUnit weights = here.waiting.front();
      here.waiting.pop_front();
      return weights;
    }
    const PipelineUnit early{UnitKind::forward, 0, here.forwards};
    if (map_.in_v && here.forwards < s_.micro_batches && is_ready(stage, early)) return early;
    return std::nullopt;
  }

  void finish(std::int64_t stage, std::int64_t tick, const PipelineUnit& unit) {
    Stage& here = at(stage);
    orders_[static_cast<std::size_t>(stage)].push_back({tick, unit});
    if (unit.kind == UnitKind::weights) {
      --here.held;
      return;
    }
    done(unit.kind, map_.piece_of(stage, unit.chunk), unit.micro_batch) = true;
    if (unit.kind == UnitKind::backward) {
      here.waiting.push_back({UnitKind::weights, unit.chunk, unit.micro_batch});
      return;
    }
    ++here.held;
    if (unit.chunk == 0) ++here.forwards;
  }

  Stage& at(std::int64_t stage) { return stages_[static_cast<std::size_t>(stage)]; }

  const PipelineShape& s_;
  const StageMap map_;
  std::vector<Stage> stages_;
  std::vector<bool> done_[2];  // [kind][piece · micro-batches + micro-batch]
  std::vector<std::vector<Timed>> orders_;
};

struct TimedMessage {
  std::int64_t tick = 0;  // it follows the unit of this tick
  PipelineMessage message;
};

// [stage] in the order of ticks; of one tick what the stage sends comes first.
std::vector<std::vector<TimedMessage>> messages_of(const StageMap& map, const std::vector<std::vector<Timed>>& orders) {
  std::vector<std::vector<TimedMessage>> messages(orders.size());
  for (const bool is_send : {true, false})
    for (std::size_t stage = 0; stage < orders.size(); ++stage)
      for (const auto& [tick, unit] : orders[stage]) {
        if (unit.kind == UnitKind::weights) continue;
        const auto here = static_cast<std::int64_t>(stage);
        const std::int64_t piece = map.piece_of(here, unit.chunk) + (unit.kind == UnitKind::forward ? 1 : -1);
        if (piece < 0 || piece == map.pieces() || map.stage_of(piece) == here) continue;
        if (is_send)
          messages[stage].push_back({tick, {unit, true}});
        else
          messages[static_cast<std::size_t>(map.stage_of(piece))].push_back(
              {tick, {{unit.kind, map.chunk_of(piece), unit.micro_batch}, false}});
      }
  for (std::vector<TimedMessage>& of_stage : messages)
    std::stable_sort(of_stage.begin(), of_stage.end(),
                     [](const TimedMessage& a, const TimedMessage& b) { return a.tick < b.tick; });
  return messages;
}

std::vector<PipelineItem> merged(const std::vector<Timed>& units, const std::vector<TimedMessage>& messages) {
  std::vector<PipelineItem> items;
  auto message = messages.begin();
  const auto add_messages = [&](std::int64_t end) {
    while (message != messages.end() && message->tick < end) {
      const std::int64_t tick = message->tick;
      PipelineItem group;
      for (; message != messages.end() && message->tick == tick; ++message) group.messages.push_back(message->message);
      items.push_back(std::move(group));
    }
  };
  for (const Timed& timed : units) {
    add_messages(timed.tick);
    items.push_back({true, timed.unit, {}});
  }
  assert(message == messages.end() || message->tick <= units.back().tick);
  add_messages(units.back().tick + 1);
  return items;
}

}  // namespace

std::vector<std::vector<PipelineItem>> zero_bubble_items(const PipelineShape& shape) {
  assert(shape.stages > 1 && shape.chunks == (shape.map().in_v ? 2 : 1));
  const std::vector<std::vector<Timed>> orders = Clockwork(shape).run();
  const std::vector<std::vector<TimedMessage>> messages = messages_of(shape.map(), orders);
  std::vector<std::vector<PipelineItem>> items;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) items.push_back(merged(orders[stage], messages[stage]));
  return items;
}

}  // namespace stretto
