#include "exec/launch/greeting.hpp"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace stretto::launch {
namespace {

Clock::time_point soon() { return time_for(5, 0); }

// Answers all calls on a thread of its own, until a guest has arrived or `wait_s` is over.
struct Host {
  explicit Host(const std::string& token, double wait_s = 5) : reception(listen_on("127.0.0.1", 0), token) {
    thread = std::jthread([this, wait_s] { guest = reception.next(time_for(wait_s, 0)); });
  }
  Socket visit() const { return connect_to("127.0.0.1", reception.port(), soon()); }
  Socket call_as(const Caller& caller, const std::string& token) const {
    return call("127.0.0.1", reception.port(), soon(), token, caller);
  }
  Reception reception;
  std::optional<Reception::Guest> guest;
  std::jthread thread;
};

}  // namespace

TEST_CASE("processes of one job know each other, and go on talking") {
  const Caller caller{3, 8, 5, 0};
  Host host("the token");
  const Socket socket = host.call_as(caller, "the token");
  host.thread.join();
  REQUIRE(host.guest);
  CHECK(host.guest->caller == caller);
  CHECK(host.reception.refused().empty());
  const std::byte sent{42};
  std::byte got{};
  send_all(socket, {&sent, 1}, soon());
  CHECK(receive_all(host.guest->socket, {&got, 1}, soon()));
  CHECK(got == sent);
}

TEST_CASE("who has another token loses its connection, and who listens with another one is not believed") {
  Host host("the token", 1);
  CHECK_THROWS_AS(host.call_as({1, 2, 0, 0}, "another"), WrongToken);
  CHECK_THROWS_WITH(host.call_as({1, 2, 0, 0}, ""), Catch::Contains("rank 1 has another token"));
  host.thread.join();
  CHECK_FALSE(host.guest);
  CHECK(host.reception.refused() == "; 2 connections were refused, the last from 127.0.0.1 without this job's token");
}

TEST_CASE("a proof is worth nothing in another conversation") {
  Hello said;
  said.caller = {1, 2, 0, 0};
  said.nonce = random_nonce();
  Greeting first("the token");
  const auto say = [](Greeting& greeting, const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    REQUIRE(greeting.room().size() == bytes.size());
    std::memcpy(greeting.room().data(), bytes.data(), bytes.size());
    return greeting.take(bytes.size());
  };
  const Answer answer = std::get<Answer>(say(first, said));
  CHECK(answer.proof == prove("the token", Side::answering, said, answer.nonce));
  const Proof proof = prove("the token", Side::calling, said, answer.nonce);
  CHECK(std::get<Caller>(say(first, proof)) == said.caller);
  Greeting second("the token");
  CHECK(std::holds_alternative<Answer>(say(second, said)));
  CHECK(std::holds_alternative<Greeting::Refused>(say(second, proof)));
  // The answering side's proof also proves nothing for the calling side.
  Greeting third("the token");
  const Answer mirrored = std::get<Answer>(say(third, said));
  CHECK(std::holds_alternative<Greeting::Refused>(say(third, mirrored.proof)));
}

TEST_CASE("those that are silent, slow or talk nonsense keep nobody waiting") {
  Host host("the token");
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(host.visit());
  const std::string nonsense = "GET / HTTP/1.1\r\n\r\n";
  for (std::size_t i = 0; i < 10; ++i) send_all(strangers[i], std::as_bytes(std::span(nonsense)).first(i + 1), soon());
  const auto begin = Clock::now();
  const Socket socket = host.call_as({1, 2, 0, 0}, "the token");
  host.thread.join();
  REQUIRE(host.guest);
  // 20 greetings of 5 s each, one after the other, would take 100 s
  CHECK(Clock::now() - begin < std::chrono::seconds(3));
}

TEST_CASE("one address is listened at") {
  const Socket loopback = listen_on("127.0.0.1", 0), named = listen_on("localhost", 0);
  CHECK(address_of(loopback) == "127.0.0.1");
  CHECK(is_loopback(address_of(named)));
  // The address is not this machine's (RFC 5737), but through a gateway other machines may reach this one by it.
  const Socket elsewhere = listen_on("192.0.2.1", 0);
  CHECK(address_of(elsewhere) == "::");
}

}  // namespace stretto::launch
