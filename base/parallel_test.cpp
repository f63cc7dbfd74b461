#include "base/parallel.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace stretto {

TEST_CASE("parts of a parallel loop make up all of it") {
  for (const std::int64_t count : {0, 1, 7, 1000, 1003})
    for (const std::int64_t least : {1, 10, 5000}) {
      std::vector<int> times(static_cast<std::size_t>(count), 0);
      parallel_for(count, least, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
      });
      CHECK(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    }
}

TEST_CASE("each item of a parallel loop is taken once, and the failure of the first one is thrown") {
  for (const bool from_both_ends : {false, true})
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> times(static_cast<std::size_t>(count), 0), inner(times);
      const auto act = [&](std::int64_t i) {
        ++times[static_cast<std::size_t>(i)];
        // A loop within the loop stays on its thread.
        const std::thread::id here = std::this_thread::get_id();
        parallel_each(3, [&](std::int64_t) {
          inner[static_cast<std::size_t>(i)] += count == 1 || std::this_thread::get_id() == here;
        });
        if (i >= 5) throw i;
      };
      std::int64_t failed = count;
      try {
        parallel_each(count, act, from_both_ends);
      } catch (const std::int64_t i) {
        failed = i;
      }
      CHECK(failed == std::min<std::int64_t>(count, 5));
      CHECK(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
      CHECK(std::all_of(inner.begin(), inner.end(), [](int n) { return n == 3; }));
    }
}

TEST_CASE("a loop from both ends gives the calling thread the first items") {
  if (std::thread::hardware_concurrency() < 2) return;
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread::id> by(100);
  std::atomic<int> active{0};
  parallel_each(
      100,
      [&](std::int64_t i) {
        by[static_cast<std::size_t>(i)] = std::this_thread::get_id();
        ++active;
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (active < 2 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
      },
      true);
  CHECK(by.front() == caller);
  CHECK(by.back() != caller);
}

TEST_CASE("two calls run at the same time, and both end whatever either throws") {
  std::atomic<int> arrived = 0;
  const auto meet = [&] {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // never ends if one waits for the other
  };
  concurrently(meet, meet);
  CHECK(arrived == 2);

  // Within a parallel loop all processors are busy.
  std::atomic<int> moved = 0;
  parallel_each(2, [&](std::int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    concurrently([] {}, [&] { moved += std::this_thread::get_id() != outer; });
  });
  CHECK((moved == 0 || std::thread::hardware_concurrency() == 1));
  for (const bool one_throws : {false, true})
    for (const bool other_throws : {false, true}) {
      int ended = 0;
      const auto throws = [&](bool does, int what) {
        return [&ended, does, what] {
          if (++ended; does) throw what;
        };
      };
      int caught = 0;
      try {
        concurrently(throws(one_throws, 1), throws(other_throws, 2));
      } catch (const int what) {
        caught = what;
      }
      CHECK(caught == (one_throws ? 1 : other_throws ? 2 : 0));
    }
}

}  // namespace stretto
