#include "sim/event_heap.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <tuple>

namespace stretto::sim {

TEST_CASE("the event heap agrees with a sorted map under random moves", "[sim]") {
  constexpr std::uint32_t kLanes = 37;
  EventHeap heap(kLanes);
  std::map<std::uint32_t, std::pair<Picoseconds, EventKind>> expected;
  std::mt19937 random(7);
  const auto draw = [&](unsigned limit) { return static_cast<std::uint32_t>(random() % limit); };
  Picoseconds now = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (expected.empty() || draw(3) > 0) {
      const std::uint32_t lane = draw(kLanes);
      const Picoseconds time = now + draw(50);
      const auto kind = static_cast<EventKind>(draw(3));
      heap.schedule(lane, time, kind);
      expected[lane] = {time, kind};
      continue;
    }
    const auto first = std::min_element(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.second.first, a.second.second, a.first) <
             std::tuple(b.second.first, b.second.second, b.first);
    });
    REQUIRE(heap.next_time() == first->second.first);
    const EventHeap::Event event = heap.fire();
    REQUIRE(event.lane() == first->first);
    REQUIRE(event.kind() == first->second.second);
    now = event.time;
    expected.erase(first);
    // While an event is handled its own lane and others are scheduled.
    for (std::uint32_t n = draw(3); n > 0; --n) {
      const std::uint32_t lane = draw(2) ? event.lane() : draw(kLanes);
      const Picoseconds time = now + draw(50);
      heap.schedule(lane, time, EventKind::finish);
      expected[lane] = {time, EventKind::finish};
    }
    heap.settle();
  }
  CHECK(heap.next_time() != kNever);
}

}  // namespace stretto::sim
