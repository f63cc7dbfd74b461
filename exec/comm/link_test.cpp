#include "exec/comm/link.hpp"

#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

namespace stretto::local {
namespace {

using namespace std::chrono_literals;

// A timeout that fails a test that hangs, and never a slow one.
constexpr auto kLong = 30s;

}  // namespace

TEST_CASE("a message is met when both ends are posted, whichever comes first", "[comm]") {
  const int value = 7;
  for (const bool sends_first : {true, false}) {
    Link link;
    std::uint64_t sent = 0, received = 0;
    if (sends_first) sent = link.post_send(&value);
    received = link.post_receive();
    if (!sends_first) sent = link.post_send(&value);
    const Link::Ends sender = link.meet(sent, kLong), receiver = link.meet(received, kLong);
    CHECK(sender.outcome == WaitOutcome::met);
    CHECK(receiver.outcome == WaitOutcome::met);
    CHECK(sender.complete == receiver.complete);
    CHECK(receiver.in == &value);
    link.delivered(received, Clock::now());
    CHECK(link.await_delivery(sent, kLong).outcome == WaitOutcome::met);
  }
}

TEST_CASE("several messages may be under way, and are received in the order in which they are sent", "[comm]") {
  Link link;
  const int values[] = {1, 2, 3};
  std::vector<std::uint64_t> sent, received;
  for (const int& value : values) sent.push_back(link.post_send(&value));
  for (int i = 0; i < 3; ++i) received.push_back(link.post_receive());
  CHECK(sent == std::vector<std::uint64_t>{0, 1, 2});
  CHECK(received == sent);
  // The receiver may take the messages in any order; the sender frees them in order.
  for (const std::uint64_t number : {2, 0, 1}) {
    CHECK(link.meet(number, kLong).in == &values[number]);
    link.delivered(number, Clock::now());
  }
  for (const std::uint64_t number : sent) CHECK(link.await_delivery(number, kLong).outcome == WaitOutcome::met);
  CHECK(link.post_send(&values[0]) == 3);
}

TEST_CASE("two threads pass many messages through one buffer", "[comm]") {
  constexpr int kMessages = 2000;
  Link link;
  std::vector<int> got;
  {
    std::jthread sender([&] {
      int buffer = -1;  // unused again when it has been delivered
      for (int i = 0; i < kMessages; ++i) {
        buffer = i;
        const std::uint64_t number = link.post_send(&buffer);
        if (link.await_delivery(number, kLong).outcome != WaitOutcome::met) return;
      }
    });
    std::jthread receiver([&] {
      for (int i = 0; i < kMessages; ++i) {
        const std::uint64_t number = link.post_receive();
        const Link::Ends meeting = link.meet(number, kLong);
        if (meeting.outcome != WaitOutcome::met) return;
        got.push_back(*static_cast<const int*>(meeting.in));
        link.delivered(number, Clock::now());
      }
    });
  }
  REQUIRE(got.size() == kMessages);
  for (int i = 0; i < kMessages; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("an end that does not come in time is a timeout for the other", "[comm]") {
  const int value = 7;
  Link unsent, unreceived, undelivered;
  const std::uint64_t received = unsent.post_receive();
  CHECK(unsent.meet(received, 20ms).outcome == WaitOutcome::timed_out);
  const std::uint64_t sent = unreceived.post_send(&value);
  CHECK(unreceived.meet(sent, 20ms).outcome == WaitOutcome::timed_out);
  undelivered.post_receive();
  CHECK(undelivered.await_delivery(undelivered.post_send(&value), 20ms).outcome == WaitOutcome::timed_out);
}

TEST_CASE("abort wakes whoever waits and turns away whoever comes later", "[comm]") {
  const int value = 7;
  Link link;
  const std::uint64_t number = link.post_receive();
  auto waiting = std::async(std::launch::async, [&] { return link.meet(number, kLong).outcome; });
  std::this_thread::sleep_for(10ms);
  link.abort();
  CHECK(waiting.get() == WaitOutcome::aborted);
  CHECK(link.meet(link.post_receive(), kLong).outcome == WaitOutcome::aborted);
  CHECK(link.await_delivery(link.post_send(&value), kLong).outcome == WaitOutcome::aborted);
}

}  // namespace stretto::local
