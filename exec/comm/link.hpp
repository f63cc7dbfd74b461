#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "exec/comm/barrier.hpp"

namespace stretto::local {

// Messages from one rank to another on one communicator, in one process. The n-th send is matched with the n-th
// receive; the receiver copies the bytes. Thread-safe, with at most one thread at a time on each side. Waits sleep and
// do not spin.
//
// Per message:  sender    post_send, meet, await_delivery
//               receiver  post_receive, meet, copy `in` to its buffer, delivered
// Several messages may be open; each side numbers its messages from 0.
class Link {
 public:
  struct Ends {
    WaitOutcome outcome = WaitOutcome::met;
    Clock::time_point complete{};  // time at which the second end was posted: equal for both
    const void* in = nullptr;      // the sender's buffer, valid until delivered() is called
  };

  // Post an end and return the number of the message, for the calls below. The sender must not change the buffer until
  // await_delivery() has returned.
  std::uint64_t post_send(const void* in) {
    std::lock_guard lock(mutex_);
    Message& message = at(sent_);
    message.in = in;
    post(message);
    return sent_++;
  }
  std::uint64_t post_receive() {
    std::lock_guard lock(mutex_);
    post(at(received_));
    return received_++;
  }

  // Waits until both ends are posted. After any outcome but `met` the link must not be used again.
  Ends meet(std::uint64_t number, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const WaitOutcome outcome = wait(lock, timeout, [&] { return at(number).ends == 2; });
    return {outcome, at(number).complete, at(number).in};
  }

  struct Delivery {
    WaitOutcome outcome = WaitOutcome::met;
    // time at which the receiver had the bytes; time at which it would have had them without other messages
    Clock::time_point at{}, alone{};
  };
  // The receiver calls this when it has the bytes of a message. `alone` is the time at which it would have had them
  // without other messages.
  void delivered(std::uint64_t number, Clock::time_point alone) {
    std::lock_guard lock(mutex_);
    at(number).delivery.at = Clock::now();
    at(number).delivery.alone = alone;
    at(number).is_delivered = true;
    changed_.notify_all();
  }
  // The sender waits for the receiver. This frees the message, so call it for every message, in order. After any
  // outcome but `met` the link must not be used again.
  Delivery await_delivery(std::uint64_t number, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const WaitOutcome outcome = wait(lock, timeout, [&] { return at(number).is_delivered; });
    if (outcome != WaitOutcome::met) return {outcome, {}, {}};
    const Delivery delivery = at(number).delivery;
    messages_.pop_front(), ++first_;
    return delivery;
  }

  // May be called from any thread at any time: all present and later waits return `aborted`.
  void abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  struct Message {
    const void* in = nullptr;
    int ends = 0;
    bool is_delivered = false;
    Clock::time_point complete{};
    Delivery delivery;
  };

  Message& at(std::uint64_t number) {
    while (first_ + messages_.size() <= number) messages_.emplace_back();
    return messages_[number - first_];
  }
  void post(Message& message) {
    if (++message.ends < 2) return;
    message.complete = Clock::now();
    changed_.notify_all();
  }
  template <class Ready>
  WaitOutcome wait(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds timeout, Ready ready) {
    if (!changed_.wait_for(lock, timeout, [&] { return ready() || aborted_; })) return WaitOutcome::timed_out;
    return ready() ? WaitOutcome::met : WaitOutcome::aborted;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;  // messages from number first_ on
  std::uint64_t first_ = 0, sent_ = 0, received_ = 0;
  bool aborted_ = false;
};

}  // namespace stretto::local
