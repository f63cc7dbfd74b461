#include "exec/host/cores.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

using namespace stretto::host;

namespace {

// Waits for other threads. A test cannot see that a thread waits, but one that has not returned after this long very
// likely does.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

}  // namespace

TEST_CASE("as many hold a core as there are") {
  CorePool pool(2);
  std::atomic<int> inside{0}, most{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          const auto core = pool.acquire();
          if (!core) return;
          const int now = ++inside;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          std::this_thread::yield();
          --inside;
          pool.release(*core);
        }
      });
  }
  CHECK(inside == 0);
  CHECK(most <= 2);
  CHECK(pool.acquire());  // all cores were released
  CHECK(pool.acquire());
}

TEST_CASE("cores are handed out first come, first served") {
  CorePool pool(1);
  REQUIRE(pool.acquire());
  std::mutex mutex;
  std::vector<int> served;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        if (!pool.acquire()) return;
        {
          std::lock_guard lock(mutex);
          served.push_back(t);
        }
        pool.release(0);
      });
      settle();  // so that it queues before the next thread
    }
    {
      std::lock_guard lock(mutex);
      CHECK(served.empty());
    }
    pool.release(0);
  }
  CHECK(served == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("a core is not taken by who comes while others wait") {
  CorePool pool(1);
  REQUIRE(pool.acquire());
  std::atomic<bool> waiter_had_it{false}, waiter_may_go{false}, late_was_second{false};
  {
    std::jthread waiter([&] {
      if (!pool.acquire()) return;
      waiter_had_it = true;
      while (!waiter_may_go) std::this_thread::yield();
      pool.release(0);
    });
    settle();
    pool.release(0);  // goes to the waiter, whether or not its thread has run since then
    std::jthread late([&] {
      if (!pool.acquire()) return;
      late_was_second = waiter_had_it.load();
      pool.release(0);
    });
    settle();
    waiter_may_go = true;
  }
  CHECK(late_was_second);
}

TEST_CASE("shutting down wakes all that wait and refuses all that come later") {
  CorePool pool(1);
  REQUIRE(pool.acquire());
  std::atomic<int> refused{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        if (!pool.acquire()) ++refused;
      });
    settle();
    CHECK(refused == 0);
    pool.shut_down();
  }
  CHECK(refused == 3);
  CHECK_FALSE(pool.acquire());
  pool.release(0);  // the holder may still release it
  CHECK_FALSE(pool.acquire());
}

TEST_CASE("who holds a core is pinned to it") {
  CorePool pool(1);
  std::jthread thread([&] {
    const auto core = pool.acquire();
    REQUIRE(core);
    cpu_set_t set;
    CPU_ZERO(&set);
    REQUIRE(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0);
    CHECK(CPU_COUNT(&set) == 1);
    pool.release(*core);
  });
}

TEST_CASE("who holds no core may run on any") {
  cpu_set_t before, after;
  REQUIRE(pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0);
  CorePool pool(1);
  std::jthread thread([&] {
    pool.release(*pool.acquire());
    pool.roam();
    REQUIRE(pthread_getaffinity_np(pthread_self(), sizeof after, &after) == 0);
  });
  thread.join();
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("several cores are held at once, and who wants them is not overtaken") {
  CorePool pool(3);
  const auto one = pool.acquire();
  REQUIRE(one);
  std::atomic<bool> held{false}, may_go{false}, late_was_second{false};
  {
    std::jthread holder([&] {
      const auto cores = pool.hold(3, 0);
      held = cores && cores->size() == 3;
      while (!may_go) std::this_thread::yield();
      if (cores)
        for (const int core : *cores) pool.release(core);
    });
    settle();
    CHECK_FALSE(held);
    std::jthread late([&] {
      const auto core = pool.acquire();  // two are free, but not for later callers
      late_was_second = held.load();
      if (core) pool.release(*core);
    });
    settle();
    pool.release(*one);
    settle();
    may_go = true;
  }
  CHECK(late_was_second);
  CHECK(pool.hold(3, 0));
}

TEST_CASE("priority decides who of those that wait gets a core") {
  CorePool pool(1);
  REQUIRE(pool.acquire());
  std::mutex mutex;
  std::vector<int> served;
  {
    std::vector<std::jthread> threads;
    for (const int priority : {0, 1, -1, 0, -1})
      threads.emplace_back([&, priority, number = threads.size()] {
        std::this_thread::sleep_for(number * std::chrono::milliseconds(50));
        if (!pool.acquire(priority)) return;
        {
          std::lock_guard lock(mutex);
          served.push_back(static_cast<int>(number));
        }
        pool.release(0);
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    pool.release(0);
  }
  CHECK(served == std::vector<int>{2, 4, 0, 3, 1});
}
