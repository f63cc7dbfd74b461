#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stretto::local {

using Clock = std::chrono::steady_clock;

// How a wait for other threads ended.
enum class WaitOutcome { met, aborted, timed_out };

// Rendezvous of the members of one communicator, reusable. Thread-safe; each member calls meet() the
// same number of times in the same order (the verifier has proved that they do).
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}

  struct Crossing {
    WaitOutcome outcome = WaitOutcome::met;
    Clock::time_point complete{};  // when the last member came: the same value for all
    int missing = 0;               // how many had not come, when timed out
  };
  // Blocks until all members have called it, abort() is called, or `timeout` has passed; after anything but `met` the
  // barrier is good for nothing more. Sleeps, never spins.
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
    // A member that is still in the previous meeting's wait cannot be overtaken: generation_ moves on only when all
    // have come again, itself included, so complete_ is still that of its own meeting when it reads it.
    if (!changed_.wait_for(lock, timeout, [&] { return generation_ != meeting || aborted_; }))
      return {WaitOutcome::timed_out, {}, members_ - arrived_};
    if (generation_ == meeting) return {WaitOutcome::aborted, {}, 0};
    return {WaitOutcome::met, complete_, 0};
  }

  // From any thread, at any time: everybody who waits, or comes later, gets `aborted`.
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
