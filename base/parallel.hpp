#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace stretto {

// Cuts [0, count) into ranges and calls act(begin, end) for each range on a thread of its own. There are as many
// threads as processors, but each has at least `least` items, and fewer run where the system grants fewer. Blocks until
// all are done. `act` must not throw.
template <class Act>
void parallel_for(std::int64_t count, std::int64_t least, Act act) {
  const std::int64_t processors = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(count / least, 1, processors);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(parts));
  for (std::int64_t part = 1; part < parts; ++part) try {
      threads.emplace_back([&act, begin = count * part / parts, end = count * (part + 1) / parts] { act(begin, end); });
    } catch (const std::system_error&) {  // there is no memory for a thread, or the system allows no more threads
      act(count * part / parts, count * (part + 1) / parts);
    }
  act(std::int64_t{0}, count / parts);
  for (std::thread& thread : threads) thread.join();
}

// Calls act(i) for every i in [0, count) on all processors; each takes the next i when it is free, which suits items of
// unequal size. Blocks until all are done. `act` must not throw.
template <class Act>
void parallel_each(std::int64_t count, Act act) {
  std::atomic<std::int64_t> next{0};
  parallel_for(count, 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t i = next++; i < count; i = next++) act(i);
  });
}

}  // namespace stretto
