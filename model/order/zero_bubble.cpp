#include "model/order/zero_bubble.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "model/order/timed_units.hpp"

namespace stretto {
namespace {

struct Stage {
  std::vector<PipelineUnit> pattern;  // F and B
  std::size_t next = 0;
  std::int64_t forwards = 0;         // F of the first chunk that are done
  std::int64_t held = 0;             // (chunk, micro-batch) pairs between F and W
  std::deque<PipelineUnit> waiting;  // W whose B is done
};

std::vector<PipelineUnit> pattern_of(const PipelineShape& s, std::int64_t stage) {
  const std::int64_t period = 2 * s.chunks, last = s.stages - 1;
  std::vector<TimedUnit> units;
  std::int64_t begin = 0;
  for (std::int64_t pass = 0; pass < period; ++pass) {
    const bool down = pass % 2 == 0, is_forward = pass < s.chunks;
    const std::int64_t chunk = is_forward ? pass : period - 1 - pass, a_stage = down ? 1 : period - 1;
    for (std::int64_t mb = 0; mb < s.micro_batches; ++mb)
      units.push_back({begin + a_stage * (down ? stage : last - stage) + mb * period,
                       {is_forward ? UnitKind::forward : UnitKind::backward, chunk, mb}});
    begin += a_stage * last + 1;
  }
  std::sort(units.begin(), units.end(), [](const TimedUnit& a, const TimedUnit& b) { return a.tick < b.tick; });
  std::vector<PipelineUnit> pattern;
  for (const TimedUnit& timed : units) pattern.push_back(timed.unit);
  return pattern;
}

class Clockwork {
 public:
  explicit Clockwork(const PipelineShape& shape)
      : s_(shape), map_(shape.map()), done_(map_, shape.micro_batches), orders_(stages_of(shape)) {
    for (std::int64_t stage = 0; stage < s_.stages; ++stage) stages_.emplace_back().pattern = pattern_of(s_, stage);
  }

  TimedOrders run() {
    const auto units = static_cast<std::size_t>(3 * s_.chunks * s_.micro_batches);
    const auto is_over = [&](const std::vector<TimedUnit>& order) { return order.size() == units; };
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
  bool is_ready(std::int64_t stage, const PipelineUnit& unit) {
    if (unit.kind == UnitKind::forward && at(stage).held >= map_.pieces()) return false;
    return done_.is_ready(stage, unit);
  }

  std::optional<PipelineUnit> begin(std::int64_t stage) {
    Stage& here = at(stage);
    const auto is_early = [&](const PipelineUnit& unit) {  // it was computed before its turn
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
    done_.finish(stage, unit);
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
  UnitsDone done_;
  TimedOrders orders_;
};

}  // namespace

std::vector<std::vector<PipelineItem>> zero_bubble_items(const PipelineShape& shape) {
  assert(shape.stages > 1 && shape.chunks == (shape.map().in_v ? 2 : 1));
  return with_messages(shape.map(), Clockwork(shape).run());
}

}  // namespace stretto
