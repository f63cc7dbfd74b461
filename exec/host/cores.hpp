#pragma once
#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace stretto::host {

// The cores of one device, granted by priority, within one priority first come, first served, and never taken away. A
// running operation holds a core and is pinned to it, so that an oversubscribed machine behaves like the simulator's
// queue and not like the operating system's scheduler, which would at times put two running operations on one core
// while another core is idle. Thread-safe.
class CorePool {
 public:
  // `first` is the number of the pool's first core among those of the process, so that devices do not share cores while
  // there are enough.
  explicit CorePool(int cores, int first = 0);
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  // Blocks until this caller gets a core (the lowest priority first), pins the calling thread to it and returns its
  // number in the pool, which release() needs. nullopt when the pool was shut down meanwhile.
  std::optional<int> acquire(int priority = 0);
  // Acquires several cores at once, without pinning, for an operation that waits while it holds them. The first in the
  // queue is not overtaken by callers that need fewer. `count` is at most the number of cores.
  std::optional<std::vector<int>> hold(int count, int priority);
  void release(int core);
  // Pins the calling thread, which is about to work, to a core that it holds.
  void pin_to(int core) const { pin(pthread_self(), core); }
  // Lets the calling thread, which works on no core, run on any core. Call it before the thread sleeps for something
  // other than a core: a pinned thread would wake only after the operation that runs on its old core, although another
  // core may be idle.
  void roam() const;
  // Wakes all waiters and refuses all later calls, permanently.
  void shut_down();

 private:
  struct Waiter {
    std::condition_variable granted_changed;
    std::size_t count = 1;
    int priority = 0;
    bool pins = true;
    pthread_t thread;
    std::vector<int> granted;
  };
  bool wait(Waiter& self, std::unique_lock<std::mutex>& lock);
  void serve();
  void pin(pthread_t thread, int core) const;

  std::mutex mutex_;
  std::deque<Waiter*> queue_;  // sorted by priority, then by arrival
  std::vector<int> free_;
  std::vector<int> cpus_;  // [core]: its number in the operating system; empty: threads are not pinned
  cpu_set_t allowed_;      // processors on which the process may run
  bool closed_ = false;
};

}  // namespace stretto::host
