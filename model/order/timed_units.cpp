#include "model/order/timed_units.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

namespace stretto {
namespace {

struct TimedMessage {
  std::int64_t tick = 0;  // it follows the unit of this tick
  PipelineMessage message;
};

// Returns [stage] messages in the order of ticks; within a tick a stage's sends come first.
std::vector<std::vector<TimedMessage>> messages_of(const StageMap& map, const TimedOrders& orders) {
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

std::vector<PipelineItem> merged(const std::vector<TimedUnit>& units, const std::vector<TimedMessage>& messages) {
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
  for (const TimedUnit& timed : units) {
    add_messages(timed.tick);
    items.push_back({true, timed.unit, {}});
  }
  assert(message == messages.end() || message->tick <= units.back().tick);
  add_messages(units.back().tick + 1);
  return items;
}

}  // namespace

std::vector<std::vector<PipelineItem>> with_messages(const StageMap& map, const TimedOrders& orders) {
  const std::vector<std::vector<TimedMessage>> messages = messages_of(map, orders);
  std::vector<std::vector<PipelineItem>> items;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) items.push_back(merged(orders[stage], messages[stage]));
  return items;
}

TimedOrders timed(const StageMap& map, const std::vector<std::vector<PipelineUnit>>& orders) {
  std::int64_t micro_batches = 0;
  std::size_t left = 0;
  for (const std::vector<PipelineUnit>& order : orders) {
    left += order.size();
    for (const PipelineUnit& unit : order) micro_batches = std::max(micro_batches, unit.micro_batch + 1);
  }
  UnitsDone done(map, micro_batches);
  TimedOrders timed(orders.size());
  for (std::int64_t tick = 0; left > 0; ++tick) {
    std::vector<std::int64_t> begin;  // [stage] number of stages
    for (std::size_t stage = 0; stage < orders.size(); ++stage) {
      const std::size_t next = timed[stage].size();
      if (next < orders[stage].size() && done.is_ready(static_cast<std::int64_t>(stage), orders[stage][next]))
        begin.push_back(static_cast<std::int64_t>(stage));
    }
    assert(!begin.empty());
    for (const std::int64_t stage : begin) {
      std::vector<TimedUnit>& here = timed[static_cast<std::size_t>(stage)];
      here.push_back({tick, orders[static_cast<std::size_t>(stage)][here.size()]});
      done.finish(stage, here.back().unit);
    }
    left -= begin.size();
  }
  return timed;
}

UnitsDone::UnitsDone(const StageMap& map, std::int64_t micro_batches) : map_(map), micro_batches_(micro_batches) {
  for (auto& done : done_) done.resize(static_cast<std::size_t>(map.pieces() * micro_batches));
}

bool UnitsDone::is_ready(std::int64_t stage, const PipelineUnit& unit) const {
  const std::int64_t piece = map_.piece_of(stage, unit.chunk), mb = unit.micro_batch;
  const auto& [forward, backward] = done_;
  switch (unit.kind) {
    case UnitKind::forward:
      return piece == 0 || forward[index(piece - 1, mb)];
    case UnitKind::backward:
      return forward[index(piece, mb)] && (piece + 1 == map_.pieces() || backward[index(piece + 1, mb)]);
    case UnitKind::weights:
      return backward[index(piece, mb)];
  }
  return false;
}

void UnitsDone::finish(std::int64_t stage, const PipelineUnit& unit) {
  if (unit.kind != UnitKind::weights)
    done_[static_cast<int>(unit.kind)][index(map_.piece_of(stage, unit.chunk), unit.micro_batch)] = true;
}

}  // namespace stretto
