#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stretto::local {

using Clock = std::chrono::steady_clock;

// Where the members of one communicator meet, as often as the schedule says. Thread-safe; each member calls meet() the
// same number of times in the same order (the verifier has proved that they do).
class Rendezvous {
 public:
  explicit Rendezvous(int members) : members_(members) {}

  enum class Outcome { met, aborted, timed_out };
  struct Meeting {
    Outcome outcome = Outcome::met;
    Clock::time_point complete{};  // when the last member came: the same value for all
    int missing = 0;               // how many had not come, when timed out
  };
  // Blocks until all members have called it, abort() is called, or `timeout` has passed; after anything but `met` the
  // rendezvous is good for nothing more. Sleeps, never spins.
  Meeting meet(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (aborted_) return {Outcome::aborted, {}, 0};
    const std::uint64_t meeting = generation_;
    if (++arrived_ == members_) {
      arrived_ = 0;
      ++generation_;
      complete_ = Clock::now();
      changed_.notify_all();
      return {Outcome::met, complete_, 0};
    }
    // A member that is still in the previous meeting's wait cannot be overtaken: generation_ moves on only when all
    // have come again, itself included, so complete_ is still that of its own meeting when it reads it.
    if (!changed_.wait_for(lock, timeout, [&] { return generation_ != meeting || aborted_; }))
      return {Outcome::timed_out, {}, members_ - arrived_};
    if (generation_ == meeting) return {Outcome::aborted, {}, 0};
    return {Outcome::met, complete_, 0};
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
