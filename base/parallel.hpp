#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace stretto {

// This is the only file of the predictor that starts threads (tests/cli/page_test.py): the page links the predictor as
// WebAssembly, where a thread that is started never runs, and what waits for it waits for ever.
#ifdef __EMSCRIPTEN__
inline constexpr bool kHasThreads = false;
#else
inline constexpr bool kHasThreads = true;
#endif

// Where there are no threads, parallel_each() calls this before each item: who waits for the loop sees that it goes on.
inline void (*goes_on)() = [] {};

// The loops below run on as many threads as there are processors, the calling one included, and on fewer where the
// system grants fewer. A loop within a loop runs on the thread that comes to it, because the others are busy.
inline bool& is_in_parallel_loop() {
  thread_local bool is_within = false;
  return is_within;
}

// Calls act(part, parts) for each part in [0, parts) on a thread of its own; part 0 on the calling thread. There are at
// most `most` parts. Blocks until all are done. `act` must not throw.
template <class Act>
void parallel_parts(std::int64_t most, Act act) {
  const std::int64_t processors =
      !kHasThreads || is_in_parallel_loop() ? 1 : std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(most, 1, processors);
  if (parts == 1) return act(std::int64_t{0}, parts);
  const auto within = [&act, parts](std::int64_t part) {
    is_in_parallel_loop() = true;
    act(part, parts);
    is_in_parallel_loop() = false;
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(parts));
  for (std::int64_t part = 1; part < parts; ++part) try {
      threads.emplace_back(within, part);
    } catch (const std::system_error&) {  // there is no memory for a thread, or the system allows no more threads
      within(part);
    }
  within(0);
  for (std::thread& thread : threads) thread.join();
}

// Cuts [0, count) into ranges of at least `least` items and calls act(begin, end) for each. `act` must not throw.
template <class Act>
void parallel_for(std::int64_t count, std::int64_t least, Act act) {
  parallel_parts(count / least,
                 [&](std::int64_t part, std::int64_t parts) { act(count * part / parts, count * (part + 1) / parts); });
}

// Calls act(i) for every i in [0, count); each thread takes the next i when it is free, which suits items of unequal
// size. Where calls throw, all others are made nevertheless, and the exception of the lowest i is thrown again: it does
// not depend on the number of threads. `from_both_ends`: the calling thread takes the first of what is left, the others
// the last. So of items in order of falling size only one thread has large ones, and no item is begun late that takes
// long.
template <class Act>
void parallel_each(std::int64_t count, Act act, bool from_both_ends = false) {
  std::mutex mutex;
  std::int64_t first = 0, end = count, failed = count;
  std::exception_ptr failure;
  const auto next = [&](bool is_last) {
    const std::lock_guard lock(mutex);
    return first == end ? count : is_last ? --end : first++;
  };
  parallel_parts(count, [&](std::int64_t part, std::int64_t) {
    const bool takes_last = from_both_ends && part > 0;
    for (std::int64_t i = next(takes_last); i < count; i = next(takes_last)) try {
        if constexpr (!kHasThreads) goes_on();
        act(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) failed = i, failure = std::current_exception();
      }
  });
  if (failure) std::rethrow_exception(failure);
}

// Calls `one` on the calling thread and `other` at the same time on a thread of its own, or after `one` where there are
// no threads, within a parallel loop, or where the system grants no thread. Returns when both are done. If either
// throws, the other is finished all the same; if both throw, what `one` threw is thrown again. Loops in them are
// parallel.
template <class One, class Other>
void concurrently(One one, Other other) {
  std::exception_ptr failure_of_one, failure_of_other;
  const auto call = [](auto& act, std::exception_ptr& failure) {
    try {
      act();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  std::thread thread;
  if (kHasThreads && !is_in_parallel_loop()) try {
      thread = std::thread([&] { call(other, failure_of_other); });
    } catch (const std::system_error&) {  // as in parallel_parts()
    }
  call(one, failure_of_one);
  if (thread.joinable())
    thread.join();
  else
    call(other, failure_of_other);
  if (failure_of_one) std::rethrow_exception(failure_of_one);
  if (failure_of_other) std::rethrow_exception(failure_of_other);
}

}  // namespace stretto
