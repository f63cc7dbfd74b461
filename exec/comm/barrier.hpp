#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stretto::local {

using Clock = std::chrono::steady_clock;

// The result of a wait for other threads.
enum class WaitOutcome { met, aborted, timed_out };

// Rendezvous of the members of one communicator, reusable. Thread-safe; all members call meet() equally often and in
// one order (the verifier has proved that they do).
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}

  struct Crossing {
    WaitOutcome outcome = WaitOutcome::met;
    Clock::time_point complete{};  // time at which the last member arrived: equal for all
    int missing = 0;               // number of members that had not arrived, when timed out
  };
  // Blocks until all members have called it, abort() is called, or `timeout` has passed; after any outcome but `met`
  // the barrier must not be used again. Sleeps, never spins.
  Crossing meet(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (aborted_) return {WaitOutcome::aborted, {}, 0};
    const std::uint64_t meeting = generation_;
    if (++arrived_ == members_) {
      arrived_ = 0;
      ++generation_;
      complete_ = Clock::now();
      changed_.notify_all();
      return {WaitOutcome::met, complete_, 0};
    }
    // A member that is still in the previous meeting's wait cannot be overtaken: generation_ changes only when all
    // members, itself included, have arrived again, so complete_ is still the time of its own meeting when it reads
    // that.
    if (!changed_.wait_for(lock, timeout, [&] { return generation_ != meeting || aborted_; }))
      return {WaitOutcome::timed_out, {}, members_ - arrived_};
    if (generation_ == meeting) return {WaitOutcome::aborted, {}, 0};
    return {WaitOutcome::met, complete_, 0};
  }

  // May be called from any thread at any time: all present and later waits return `aborted`.
  void abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const int members_;
  int arrived_ = 0;
  std::uint64_t generation_ = 0;
  Clock::time_point complete_{};
  bool aborted_ = false;
};

}  // namespace stretto::local
