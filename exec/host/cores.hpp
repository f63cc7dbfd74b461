#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

namespace stretto::host {

// The cores of one device, handed out first come, first served and never taken away. What runs holds one, so that an
// oversubscribed machine behaves like the simulator's queue and not like the operating system's scheduler.
// Thread-safe.
class CorePool {
 public:
  explicit CorePool(int cores) : free_(cores) {}
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  // Blocks until it is this caller's turn. Returns false when the pool was shut down meanwhile.
  bool acquire();
  void release();
  // Wakes all that wait and refuses all that come later, for good.
  void shut_down();

 private:
  struct Waiter {
    std::condition_variable granted_changed;
    bool granted = false;
  };
  std::mutex mutex_;
  std::deque<Waiter*> queue_;
  int free_;
  bool closed_ = false;
};

}  // namespace stretto::host
