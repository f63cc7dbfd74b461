#include "model/order/pipeline_buffers.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace stretto {
namespace {

using Owner = std::pair<std::int64_t, std::int64_t>;  // (chunk, micro-batch)

// The rule that chooses among free numbers.
enum class Preference : std::uint8_t {
  longest_free,  // the number whose last user has been gone longest
  // a number that the chunk had before, else one that nobody had: a chunk's operations then have few views
  own_chunk,
};

// Hands out numbers and takes them back.
class Pool {
 public:
  Pool(Preference preference, std::int64_t count) : preference_(preference) {
    for (std::int64_t i = 0; i < count; ++i) free_.push_back(i);
  }
  std::int64_t take(Owner owner) {
    if (const auto found = owned_.find(owner); found != owned_.end()) return found->second;
    if (free_.empty()) free_.push_back(most_);
    const auto chosen = preference_ == Preference::longest_free ? free_.begin() : preferred_by(owner.first);
    const std::int64_t number = *chosen;
    free_.erase(chosen);
    most_ = std::max(most_, number + 1);
    last_chunk_[number] = owner.first;
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
  using Numbers = std::deque<std::int64_t>;
  Numbers::iterator preferred_by(std::int64_t chunk) {
    const auto has_been_of = [&](std::int64_t number) {
      const auto last = last_chunk_.find(number);
      return last != last_chunk_.end() && last->second == chunk;
    };
    if (const auto own = std::find_if(free_.begin(), free_.end(), has_been_of); own != free_.end()) return own;
    const auto is_new = [&](std::int64_t number) { return !last_chunk_.contains(number); };
    const auto fresh = std::find_if(free_.begin(), free_.end(), is_new);
    return fresh != free_.end() ? fresh : free_.begin();
  }

  const Preference preference_;
  Numbers free_;  // the number that has been free longest comes first
  std::map<Owner, std::int64_t> owned_;
  std::map<std::int64_t, std::int64_t> last_chunk_;  // [number] last chunk, for numbers that were taken
  std::int64_t most_ = 0;
};

// Sizes: how many numbers exist before any is taken, and how many were taken.
struct Counts {
  std::vector<std::int64_t> slots;  // [pool of slots]
  std::int64_t outputs = 0, gradients = 0;
};

// Returns [chunk] the pool of its slots. Chunks of an interleaved pipeline share a pool: the number of live
// micro-batches of one chunk goes up and down, but the sum over chunks hardly does (Korthikanti et al., arXiv
// 2205.05198, 4.2.3). The chunk with the head shares with none, because its slots have logits. Where W is separate from
// B each chunk takes its slots in turn (BlockWriter::kept_gradient).
std::vector<std::size_t> pools_of_chunks(const PipelineShape& shape, std::int64_t stage) {
  std::vector<std::size_t> pools(static_cast<std::size_t>(shape.chunks), 0);
  const bool lends = !is_zero_bubble(shape.schedule);
  std::size_t next = lends ? 1 : 0;
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk)
    if (!lends || (shape.chunks > 1 && shape.map().is_last(stage, chunk)))
      pools[static_cast<std::size_t>(chunk)] = next++;
  return pools;
}

class BufferAssigner {
 public:
  BufferAssigner(const PipelineShape& shape, std::int64_t stage, const std::vector<std::size_t>& pool_of_chunk,
                 const Counts& counts)
      : map_(shape.map()),
        last_use_(is_zero_bubble(shape.schedule) ? UnitKind::weights : UnitKind::backward),
        stage_(stage),
        pool_of_chunk_(pool_of_chunk),
        outputs_(Preference::longest_free, counts.outputs),
        gradients_(Preference::longest_free, counts.gradients) {
    const bool lends = std::count(pool_of_chunk.begin(), pool_of_chunk.end(), std::size_t{0}) > 1;
    for (const std::int64_t slots : counts.slots)
      slots_.emplace_back(lends && slots_.empty() ? Preference::own_chunk : Preference::longest_free, slots);
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
  Pool& slots_of(const PipelineUnit& unit) { return slots_[pool_of_chunk_[static_cast<std::size_t>(unit.chunk)]]; }
  std::int64_t slot_of(const PipelineUnit& unit) {
    // A sent gradient or activation belongs to a unit that has been computed; the unit's slot may be free again.
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
      if (map_.turns_after(stage_, unit.chunk))
        unit.buffer = slot_of({UnitKind::forward, unit.chunk + 1, unit.micro_batch});
      else if (!map_.is_last(stage_, unit.chunk))
        unit.buffer = outputs_.take(key(unit));
    } else if (unit.kind == UnitKind::backward) {
      if (map_.is_first(stage_, unit.chunk))
        gradients_.give_back(key(unit));
      else if (map_.turns_after(stage_, unit.chunk - 1))
        gradients_.hand_over(key(unit), {unit.chunk - 1, unit.micro_batch});
    }
    if (unit.kind == last_use_) slots_of(unit).give_back(key(unit));
  }

  const StageMap map_;
  const UnitKind last_use_;  // kind of the unit that uses a slot last
  const std::int64_t stage_;
  const std::vector<std::size_t>& pool_of_chunk_;
  std::vector<Pool> slots_;  // [pool]
  Pool outputs_, gradients_;
  std::map<Owner, std::int64_t> slot_of_;  // every micro-batch of every chunk has a slot
  std::set<Owner> computed_;               // forward units computed so far
};

// Notes the slots that the micro-batches of each chunk have taken.
void note_slots(const PipelineShape& shape, PipelineOrder& order) {
  std::vector<std::set<std::int64_t>> slots(static_cast<std::size_t>(shape.chunks));
  for (const PipelineItem& item : order.items) {
    if (!item.is_compute) continue;
    const PipelineUnit& unit = item.unit;
    slots[static_cast<std::size_t>(unit.chunk)].insert(unit.slot);
  }
  order.slots.clear();
  for (const std::set<std::int64_t>& of_chunk : slots) order.slots.emplace_back(of_chunk.begin(), of_chunk.end());
}

}  // namespace

void assign_buffers(const PipelineShape& shape, std::int64_t stage, PipelineOrder& order) {
  const bool overlaps = shape.overlap && shape.stages > 1, is_apart = is_zero_bubble(shape.schedule);
  const std::vector<std::size_t> pools = pools_of_chunks(shape, stage);
  Counts counts;
  counts.slots.resize(*std::max_element(pools.begin(), pools.end()) + 1);
  Counts taken = BufferAssigner(shape, stage, pools, counts).assign(order);
  const bool lends = std::count(pools.begin(), pools.end(), std::size_t{0}) > 1;
  if (overlaps || is_apart || lends) {
    if (lends) counts.slots[0] = taken.slots[0];
    if (is_apart) {
      counts.slots = taken.slots;
      for (std::int64_t& slots : counts.slots) ++slots;
    }
    // An overlapped send still reads its buffer for a while after the order has released the buffer.
    if (overlaps) {
      counts.outputs = taken.outputs + 1;
      counts.gradients = taken.gradients + 1;
    }
    taken = BufferAssigner(shape, stage, pools, counts).assign(order);
  }
  order.output_buffers = std::max<std::int64_t>(1, taken.outputs);
  order.gradient_buffers = std::max<std::int64_t>(1, taken.gradients);
  note_slots(shape, order);
  for (std::size_t chunk = 0; chunk < pools.size(); ++chunk) {
    // A chunk that takes its slots in turn has all of them, even where it has fewer micro-batches.
    if (is_apart) {
      order.slots[chunk].resize(static_cast<std::size_t>(counts.slots[pools[chunk]]));
      std::iota(order.slots[chunk].begin(), order.slots[chunk].end(), 0);
    }
    if (chunk > 0 && shape.map().turns_after(stage, static_cast<std::int64_t>(chunk) - 1))
      order.output_buffers = std::max<std::int64_t>(order.output_buffers, std::ssize(order.slots[chunk]));
  }
}

}  // namespace stretto
