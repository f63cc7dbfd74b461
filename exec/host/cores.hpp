#pragma once
#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace stretto::host {

// The cores of one device, handed out by priority, within one first come, first served, and never taken away. What runs
// holds one and is pinned to it, so that an oversubscribed machine behaves like the simulator's queue and not like the
// operating system's scheduler, which would now and then put two running operations on one core while another is idle.
// Thread-safe.
class CorePool {
 public:
  // `first` numbers the pool's cores among those of the process, so that devices do not share them while there are
  // enough.
  explicit CorePool(int cores, int first = 0);
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  // Blocks until it is this caller's turn (the lowest priority first), pins the calling thread to the core and returns
  // its number in the pool, which release() wants back. nullopt when the pool was shut down meanwhile.
  std::optional<int> acquire(int priority = 0);
  // The same for several cores at once, without pinning: for what waits while it holds them. Whoever is first in line
  // is not overtaken by those that could do with fewer. `count` is at most the number of cores.
  std::optional<std::vector<int>> hold(int count, int priority);
  void release(int core);
  // The calling thread holds the core and is going to work.
  void pin_to(int core) const { pin(pthread_self(), core); }
  // Lets the calling thread, which works on no core, run on any. To be called before it sleeps for something else than
  // a core: pinned, it would wake behind the operation that runs on its old core, although another core may be idle.
  void roam() const;
  // Wakes all that wait and refuses all that come later, for good.
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
  std::deque<Waiter*> queue_;  // by priority, then as they came
  std::vector<int> free_;
  std::vector<int> cpus_;  // [core]: the operating system's number of it; empty: threads are not pinned
  cpu_set_t allowed_;      // where the process may run
  bool closed_ = false;
};

}  // namespace stretto::host
