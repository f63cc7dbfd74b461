#pragma once
#include <cassert>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/timeline.hpp"

namespace stretto::sim {

constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();

// The next event of a lane. At equal times the order is by kind, then by lane: cores are released before they are
// requested, and lanes that request cores at one time are served by rank, then lane.
enum class EventKind : std::uint8_t { finish, start, request };

// The next event of every lane: a 4-ary heap that knows the place of each lane's event, so that moving an event (a
// slowed operation ends later) costs a sift and no event is ever stale. At most one event per lane; memory O(lanes).
// Times are picoseconds since the simulation began, below kNever; an event may be earlier than the last that fired (a
// solo call that is given up). A violated precondition is an assertion. Not thread-safe.
class EventHeap {
 public:
  struct Event {
    Picoseconds time;
    std::uint64_t order;  // kind, then lane
    std::uint32_t lane() const { return static_cast<std::uint32_t>(order); }
    EventKind kind() const { return static_cast<EventKind>(order >> 32); }
    bool before(const Event& other) const { return time != other.time ? time < other.time : order < other.order; }
  };

  // `lanes` is the number of lanes; lanes are numbered from 0. No later call allocates memory.
  explicit EventHeap(std::size_t lanes) : position_(lanes, kAbsent) { heap_.reserve(lanes); }

  // Returns the time of the earliest event, kNever if there is none. O(1).
  Picoseconds next_time() const { return heap_.empty() ? kNever : heap_.front().time; }

  // Adds the lane's event, or moves it to `time`. O(log lanes).
  void schedule(std::uint32_t lane, Picoseconds time, EventKind kind) {
    if (lane == fired_) fired_ = kAbsent;
    const Event event{time, static_cast<std::uint64_t>(kind) << 32 | lane};
    std::uint32_t at = position_[lane];
    if (at == kAbsent) {
      at = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(event);
      sift_up(at, event);
    } else if (event.before(heap_[at])) {
      sift_up(at, event);
    } else {
      sift_down(at, event);
    }
  }

  // Returns the earliest event; there must be one. The event stays in place until settle(), because the lane is nearly
  // always scheduled anew while its event is handled, and then one sift replaces a removal and an insertion.
  Event fire() {
    const Event top = heap_.front();
    fired_ = top.lane();
    return top;
  }
  // Removes the fired event unless schedule() has replaced it meanwhile. Call it once after the event was handled.
  void settle() {
    if (fired_ != kAbsent) remove(std::exchange(fired_, kAbsent));
  }

  // Removes the lane's event, which must exist and must not have fired. O(log lanes).
  void cancel(std::uint32_t lane) {
    assert(lane != fired_ && position_[lane] != kAbsent);
    remove(lane);
  }

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

  void remove(std::uint32_t lane) {
    const std::uint32_t at = std::exchange(position_[lane], kAbsent);
    const Event last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    if (at > 0 && last.before(heap_[(at - 1) / 4]))
      sift_up(at, last);
    else
      sift_down(at, last);
  }
  void place(std::uint32_t at, const Event& event) {
    heap_[at] = event;
    position_[event.lane()] = at;
  }
  void sift_up(std::uint32_t at, const Event& event) {
    while (at > 0) {
      const std::uint32_t parent = (at - 1) / 4;
      if (!event.before(heap_[parent])) break;
      place(at, heap_[parent]);
      at = parent;
    }
    place(at, event);
  }
  void sift_down(std::uint32_t at, const Event& event) {
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (;;) {
      const std::uint32_t first = at * 4 + 1;
      if (first >= size) break;
      const std::uint32_t end = first + 4 < size ? first + 4 : size;
      std::uint32_t best = first;
      for (std::uint32_t child = first + 1; child < end; ++child)
        if (heap_[child].before(heap_[best])) best = child;
      if (!heap_[best].before(event)) break;
      place(at, heap_[best]);
      at = best;
    }
    place(at, event);
  }

  std::vector<Event> heap_;
  std::vector<std::uint32_t> position_;  // [lane] → index in heap_
  std::uint32_t fired_ = kAbsent;
};

}  // namespace stretto::sim
