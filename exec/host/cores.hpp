#pragma once
#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace stretto::host {

// The cores of one device, handed out first come, first served and never taken away. What runs holds one and is pinned
// to it, so that an oversubscribed machine behaves like the simulator's queue and not like the operating system's
// scheduler, which would now and then put two running operations on one core while another is idle. Thread-safe.
class CorePool {
 public:
  // `first` numbers the pool's cores among those of the process, so that devices do not share them while there are
  // enough.
  explicit CorePool(int cores, int first = 0);
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  // Blocks until it is this caller's turn, pins the calling thread to the core and returns its number in the pool,
  // which release() wants back. nullopt when the pool was shut down meanwhile.
  std::optional<int> acquire();
  void release(int core);
  // Lets the calling thread, which holds no core, run on any. To be called before it sleeps for something else than a
  // core: pinned, it would wake behind the operation that runs on its old core, although another core may be idle.
  void roam() const;
  // Wakes all that wait and refuses all that come later, for good.
  void shut_down();

 private:
  struct Waiter {
    std::condition_variable granted_changed;
    std::optional<int> granted;
    pthread_t thread;
  };
  void pin(pthread_t thread, int core) const;

  std::mutex mutex_;
  std::deque<Waiter*> queue_;
  std::vector<int> free_;
  std::vector<int> cpus_;  // [core]: the operating system's number of it; empty: threads are not pinned
  cpu_set_t allowed_;      // where the process may run
  bool closed_ = false;
};

}  // namespace stretto::host
