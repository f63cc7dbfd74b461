#include "exec/host/cores.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace stretto::host {

CorePool::CorePool(int cores, int first) {
  CPU_ZERO(&allowed_);
  std::vector<int> usable;
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed_)) usable.push_back(cpu);
  for (int core = cores; core-- > 0;) free_.push_back(core);
  // With more cores than the process may use (a simulated larger machine, a small container) threads are not pinned,
  // and the operating system schedules them.
  if (cores <= static_cast<int>(usable.size()))
    for (int core = 0; core < cores; ++core)
      cpus_.push_back(usable[static_cast<std::size_t>(first + core) % usable.size()]);
}

std::optional<int> CorePool::acquire(int priority) {
  std::unique_lock lock(mutex_);
  if (closed_) return std::nullopt;
  if (!free_.empty() && queue_.empty()) {
    auto choice = free_.end() - 1;
    if (!cpus_.empty()) {
      // The thread's current core is preferred, if free: its caches are warm and nothing has to move.
      const int here = sched_getcpu();
      const auto mine =
          std::find_if(free_.begin(), free_.end(), [&](int c) { return cpus_[static_cast<std::size_t>(c)] == here; });
      if (mine != free_.end()) choice = mine;
    }
    const int core = *choice;
    free_.erase(choice);
    lock.unlock();
    pin(pthread_self(), core);
    return core;
  }
  Waiter self{{}, 1, priority, true, pthread_self(), {}};
  return wait(self, lock) ? std::optional(self.granted.front()) : std::nullopt;
}

std::optional<std::vector<int>> CorePool::hold(int count, int priority) {
  std::unique_lock lock(mutex_);
  if (closed_) return std::nullopt;
  Waiter self{{}, static_cast<std::size_t>(count), priority, false, pthread_self(), {}};
  return wait(self, lock) ? std::optional(std::move(self.granted)) : std::nullopt;
}

// Waits for cores. Returns false when the pool was shut down before.
bool CorePool::wait(Waiter& self, std::unique_lock<std::mutex>& lock) {
  queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), self.priority,
                                 [](int priority, const Waiter* other) { return priority < other->priority; }),
                &self);
  serve();
  self.granted_changed.wait(lock, [&] { return !self.granted.empty() || closed_; });
  if (self.granted.empty()) queue_.erase(std::find(queue_.begin(), queue_.end(), &self));
  return !self.granted.empty();
}

void CorePool::pin(pthread_t thread, int core) const {
  if (cpus_.empty()) return;
  const int cpu = cpus_[static_cast<std::size_t>(core)];
  // The thread mostly is pinned to this core already; asking is cheaper than setting.
  cpu_set_t now;
  if (pthread_getaffinity_np(thread, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now)) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  CPU_SET(cpu, &wanted);
  pthread_setaffinity_np(thread, sizeof wanted, &wanted);  // a refusal only makes times less steady
}

void CorePool::roam() const {
  if (cpus_.empty()) return;
  cpu_set_t now;
  if (pthread_getaffinity_np(pthread_self(), sizeof now, &now) == 0 && CPU_COUNT(&now) > 1) return;
  pthread_setaffinity_np(pthread_self(), sizeof allowed_, &allowed_);
}

void CorePool::release(int core) {
  std::lock_guard lock(mutex_);
  free_.push_back(core);
  if (!closed_) serve();
}

// Serves waiters until there are too few cores for the first one in the queue.
void CorePool::serve() {
  while (!queue_.empty() && free_.size() >= queue_.front()->count) {
    Waiter* next = queue_.front();
    queue_.pop_front();
    const auto granted = free_.end() - static_cast<std::ptrdiff_t>(next->count);
    next->granted.assign(granted, free_.end());
    free_.erase(granted, free_.end());
    // The thread is pinned before it wakes: on its old core another operation may be running, and it would have to wait
    // there just to learn that it has a core.
    if (next->pins) pin(next->thread, next->granted.front());
    next->granted_changed.notify_one();
  }
}

void CorePool::shut_down() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (Waiter* waiter : queue_) waiter->granted_changed.notify_one();
}

}  // namespace stretto::host
