#include "model/lower/pipeline_buffers.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace stretto {
namespace {

using Owner = std::pair<std::int64_t, std::int64_t>;  // chunk, micro-batch

// Hands out numbers; the one that has been free longest first, so that whoever used it last has had most time.
class Pool {
 public:
  explicit Pool(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) free_.push_back(i);
  }
  std::int64_t take(Owner owner) {
    if (const auto found = owned_.find(owner); found != owned_.end()) return found->second;
    if (free_.empty()) free_.push_back(most_);
    const std::int64_t number = free_.front();
    free_.pop_front();
    most_ = std::max(most_, number + 1);
    owned_.emplace(owner, number);
    return number;
  }
  void give_back(Owner owner) {
    const auto found = owned_.find(owner);
    assert(found != owned_.end());
    free_.push_back(found->second);
    owned_.erase(found);
  }
  void hand_over(Owner from, Owner to) {
    const auto found = owned_.find(from);
    assert(found != owned_.end());
    const std::int64_t number = found->second;
    owned_.erase(found);
    owned_.emplace(to, number);
  }
  std::int64_t most() const { return most_; }

 private:
  std::deque<std::int64_t> free_;
  std::map<Owner, std::int64_t> owned_;
  std::int64_t most_ = 0;
};

// How many there are before any is taken, and how many were.
struct Counts {
  std::vector<std::int64_t> slots;  // [chunk]
  std::int64_t outputs = 0, gradients = 0;
};

class BufferAssigner {
 public:
  BufferAssigner(const PipelineShape& shape, std::int64_t stage, const Counts& counts)
      : map_(shape.map()),
        last_use_(is_zero_bubble(shape.schedule) ? UnitKind::weights : UnitKind::backward),
        stage_(stage),
        outputs_(counts.outputs),
        gradients_(counts.gradients) {
    for (const std::int64_t slots : counts.slots) slots_.emplace_back(slots);
  }

  Counts assign(PipelineOrder& order) {
    for (PipelineItem& item : order.items) {
      if (item.is_compute) {
        assign(item.unit);
        after_compute(item.unit);
      }
      for (PipelineMessage& message : item.messages) assign(message.unit);
      for (const PipelineMessage& message : item.messages)
        if (message.is_send)
          (message.unit.kind == UnitKind::forward ? outputs_ : gradients_).give_back(key(message.unit));
    }
    Counts taken{{}, outputs_.most(), gradients_.most()};
    for (const Pool& pool : slots_) taken.slots.push_back(pool.most());
    return taken;
  }

 private:
  static Owner key(const PipelineUnit& unit) { return {unit.chunk, unit.micro_batch}; }
  Pool& slots_of(const PipelineUnit& unit) { return slots_[static_cast<std::size_t>(unit.chunk)]; }
  std::int64_t slot_of(const PipelineUnit& unit) {
    // A gradient that is sent, and an activation that is, are of a unit that has been computed; its slot may be gone.
    if (const auto known = slot_of_.find(key(unit)); known != slot_of_.end()) return known->second;
    return slot_of_[key(unit)] = slots_of(unit).take(key(unit));
  }

  void assign(PipelineUnit& unit) {
    unit.slot = slot_of(unit);
    unit.buffer = unit.kind == UnitKind::backward ? gradients_.take(key(unit)) : 0;
    if (unit.kind == UnitKind::forward && !map_.is_last(stage_, unit.chunk) && computed_.contains(key(unit)))
      unit.buffer = outputs_.take(key(unit));
  }

  void after_compute(PipelineUnit& unit) {
    if (unit.kind == UnitKind::forward) {
      computed_.insert(key(unit));
      if (map_.turns_behind(stage_, unit.chunk))
        unit.buffer = slot_of({UnitKind::forward, unit.chunk + 1, unit.micro_batch});
      else if (!map_.is_last(stage_, unit.chunk))
        unit.buffer = outputs_.take(key(unit));
    } else if (unit.kind == UnitKind::backward) {
      if (map_.is_first(stage_, unit.chunk))
        gradients_.give_back(key(unit));
      else if (map_.turns_behind(stage_, unit.chunk - 1))
        gradients_.hand_over(key(unit), {unit.chunk - 1, unit.micro_batch});
    }
    if (unit.kind == last_use_) slots_of(unit).give_back(key(unit));
  }

  const StageMap map_;
  const UnitKind last_use_;  // of a slot
  const std::int64_t stage_;
  std::vector<Pool> slots_;  // [chunk]
  Pool outputs_, gradients_;
  std::map<Owner, std::int64_t> slot_of_;  // every micro-batch of every chunk has one
  std::set<Owner> computed_;               // forward
};

}  // namespace

void assign_buffers(const PipelineShape& shape, std::int64_t stage, PipelineOrder& order) {
  const bool overlaps = shape.overlap && shape.stages > 1, is_apart = is_zero_bubble(shape.schedule);
  Counts counts;
  counts.slots.resize(static_cast<std::size_t>(shape.chunks));
  Counts taken = BufferAssigner(shape, stage, counts).assign(order);
  if (overlaps || is_apart) {
    if (is_apart) {
      counts.slots = taken.slots;
      for (std::int64_t& slots : counts.slots) ++slots;
    }
    // An overlapped send still reads its buffer for a while after the order has released it.
    if (overlaps) {
      counts.outputs = taken.outputs + 1;
      counts.gradients = taken.gradients + 1;
    }
    taken = BufferAssigner(shape, stage, counts).assign(order);
  }
  order.output_buffers = std::max<std::int64_t>(1, taken.outputs);
  order.gradient_buffers = std::max<std::int64_t>(1, taken.gradients);
  order.slots.clear();
  for (std::size_t chunk = 0; chunk < counts.slots.size(); ++chunk) {
    order.slots.push_back(std::max({std::int64_t{1}, taken.slots[chunk], counts.slots[chunk]}));
    if (chunk > 0 && shape.map().turns_behind(stage, static_cast<std::int64_t>(chunk) - 1))
      order.output_buffers = std::max(order.output_buffers, order.slots[chunk]);
  }
}

}  // namespace stretto
