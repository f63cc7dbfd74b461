#include "exec/host/cores.hpp"

#include <algorithm>

namespace stretto::host {

bool CorePool::acquire() {
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  if (free_ > 0) {
    // Invariant: nobody queues while a core is free, because release() hands a core over before it counts as free.
    --free_;
    return true;
  }
  Waiter self;
  queue_.push_back(&self);
  self.granted_changed.wait(lock, [&] { return self.granted || closed_; });
  if (self.granted) return true;
  queue_.erase(std::find(queue_.begin(), queue_.end(), &self));
  return false;
}

void CorePool::release() {
  std::lock_guard lock(mutex_);
  while (!queue_.empty() && !closed_) {
    Waiter* next = queue_.front();
    queue_.pop_front();
    next->granted = true;
    next->granted_changed.notify_one();
    return;
  }
  ++free_;
}

void CorePool::shut_down() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (Waiter* waiter : queue_) waiter->granted_changed.notify_one();
}

}  // namespace stretto::host
