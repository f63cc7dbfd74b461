#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "exec/launch/socket.hpp"

namespace stretto::launch {

// Mutual authentication of two processes of one job: each proves that it knows the job's token, by an HMAC over both
// nonces; the token itself is never sent. An empty token keeps out only programs that do not know the protocol. Later
// traffic is neither encrypted nor signed. Structs travel as their bytes in memory: Hello from the caller, Answer back,
// then the caller's Proof. So both processors must have one byte order.

// The connecting process, and the purpose of its connection.
struct Caller {
  std::int64_t rank = 0, size = 0;  // rank and size with which it was started
  std::uint32_t communicator = 0;   // communicator of the schedule; kNoCommunicator: the group of processes
  std::uint32_t reserved = 0;
  auto operator<=>(const Caller&) const = default;
};
constexpr std::uint32_t kNoCommunicator = UINT32_MAX;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
struct Hello {
  std::uint64_t magic = 0x32'4f'54'54'45'52'54'53;  // "STRETTO2"
  Caller caller;
  Nonce nonce{};
};
struct Answer {
  Nonce nonce{};
  Proof proof{};
};
// Returns random bytes that no other process can guess (libsodium).
Nonce random_nonce();
enum class Side : std::uint8_t { calling, answering };
// Returns the HMAC-SHA-256 of both nonces, the caller and the side, with the token as key. The side is part of it, so
// that no proof can be sent back as the other side's.
Proof prove(const std::string& token, Side side, const Hello& hello, const Nonce& answered);

// The answering side of one greeting, fed as bytes arrive; it sends and waits for nothing itself. Throws nothing for
// bytes of any kind: the caller is Refused.
class Greeting {
 public:
  explicit Greeting(std::string token) : token_(std::move(token)), answer_{random_nonce(), {}} {}
  // Returns the place for the next bytes, inside this object; never empty, valid until take().
  std::span<std::byte> room();
  // Says that `count` bytes, at most the size of room(), have been received there. Not to be called after Caller or
  // Refused was returned.
  struct More {};
  struct Refused {};
  using Next = std::variant<More, Answer, Caller, Refused>;  // Answer: must be sent; Caller: it has proved the token
  Next take(std::size_t count);
  // Returns whether the answer has been made, so that only the proof is missing.
  bool was_answered() const { return was_answered_; }

 private:
  std::string token_;
  Answer answer_;
  Hello hello_;
  Proof proof_{};
  std::size_t got_ = 0;
  bool was_answered_ = false;
};

// The other process has answered with a proof by another token (ErrorKind::runtime).
struct WrongToken : Error {
  using Error::Error;
};
// Connects to host:port, retrying until the deadline, and proves the token. Throws Error(runtime) when no process with
// this protocol has answered in time, and WrongToken at once when the answer was made with another token.
// `waiting` is called while it waits and may throw to end that. The caller owns the socket.
Socket call(const std::string& host, int port, Clock::time_point deadline, const std::string& token,
            const Caller& caller, const Waiting& waiting = {});

// Accepts and authenticates connections concurrently on the calling thread; for one thread. Owns the listening socket
// and all connections that are not yet guests; both are closed with it. A connection that is silent or sends anything
// else delays no other, and is closed after at most 5 s.
class Reception {
 public:
  Reception(Socket listening, std::string token) : listening_(std::move(listening)), token_(std::move(token)) {}
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;
  struct Guest {
    Caller caller;
    Socket socket;
  };
  // Returns the next guest that has proved the token; nothing when the deadline has passed.
  std::optional<Guest> next(Clock::time_point deadline);
  int port() const { return port_of(listening_); }
  // Returns "" or "; 3 connections were refused, …" with the reason of the last, to be added to a message.
  std::string refused() const;

 private:
  struct Pending {
    Socket socket;
    Greeting greeting;
    Clock::time_point until;
  };
  void accept();
  std::optional<Guest> hear(Pending& pending);  // closes the sockets of refused guests
  void refuse(Pending& pending);

  Socket listening_;
  std::string token_;
  std::deque<Pending> pending_;     // the oldest first
  Clock::time_point full_until_{};  // until then no other connection is accepted
  std::int64_t refused_ = 0;
  std::string last_refused_;
};

}  // namespace stretto::launch
