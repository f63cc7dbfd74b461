#include "exec/launch/greeting.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace stretto::launch {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);  // for one greeting
constexpr auto kHurry = std::chrono::seconds(1);     // when there is no room for other greetings
constexpr std::size_t kMostPending = 1024;           // beyond this number the oldest is closed

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

void require_sodium() {
  if (::sodium_init() < 0) throw runtime_failure("libsodium: no random numbers on this machine");
}

bool is_equal(const Proof& a, const Proof& b) { return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Nonce random_nonce() {
  require_sodium();
  Nonce nonce;
  ::randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove(const std::string& token, Side side, const Hello& hello, const Nonce& answered) {
  const auto bytes = [](const void* data) { return static_cast<const unsigned char*>(data); };
  static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Proof) && sizeof(Hello) == 64);
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, bytes(token.data()), token.size());
  ::crypto_auth_hmacsha256_update(&state, bytes(&side), sizeof side);
  ::crypto_auth_hmacsha256_update(&state, bytes(&hello), sizeof hello);
  ::crypto_auth_hmacsha256_update(&state, bytes(answered.data()), answered.size());
  Proof proof;
  ::crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

std::span<std::byte> Greeting::room() {
  return was_answered_ ? bytes_of(proof_).subspan(got_) : bytes_of(hello_).subspan(got_);
}

Greeting::Next Greeting::take(std::size_t count) {
  got_ += count;
  // A greeting with wrong first bytes is refused at once.
  if (!was_answered_ && got_ >= sizeof hello_.magic && hello_.magic != Hello{}.magic) return Refused{};
  if (!room().empty()) return More{};
  if (was_answered_) {
    if (!is_equal(proof_, prove(token_, Side::calling, hello_, answer_.nonce))) return Refused{};
    return hello_.caller;
  }
  was_answered_ = true;
  got_ = 0;
  answer_.proof = prove(token_, Side::answering, hello_, answer_.nonce);
  return answer_;
}

Socket call(const std::string& host, int port, Clock::time_point deadline, const std::string& token,
            const Caller& caller, const Waiting& waiting) {
  while (true) {
    Socket socket = connect_to(host, port, deadline, waiting);
    Answer answer;
    Hello said;
    said.caller = caller;
    said.nonce = random_nonce();
    std::string reason = "it closed the connection";
    try {
      const Clock::time_point soon = std::min(deadline, Clock::now() + kPatience);
      send_all(socket, bytes_of(said), soon);
      if (receive_all(socket, bytes_of(answer), soon)) {
        if (!is_equal(answer.proof, prove(token, Side::answering, said, answer.nonce)))
          throw WrongToken(ErrorKind::runtime,
                           fmt::format("rank {} has another token than who listens at {}:{} (STRETTO_TOKEN)",
                                       caller.rank, host, port));
        const Proof proof = prove(token, Side::calling, said, answer.nonce);
        send_all(socket, std::as_bytes(std::span(proof)), soon);
        return socket;
      }
    } catch (const WrongToken&) {
      throw;
    } catch (const Error& error) {
      reason = error.what();
    }
    reason = fmt::format("greeting {}:{}: {}", host, port, reason);
    if (Clock::now() >= deadline) throw runtime_failure(reason);
    if (waiting) waiting(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Reception::refuse(Pending& pending) {
  ++refused_;
  last_refused_ = peer_address_of(pending.socket) +
                  (pending.greeting.was_answered() ? " without this job's token" : " without a greeting");
  pending.socket.close();
}

std::string Reception::refused() const {
  if (refused_ == 0) return "";
  return fmt::format("; {} connection{} refused, the last from {}", refused_, refused_ == 1 ? " was" : "s were",
                     last_refused_);
}

void Reception::accept() {
  bool is_full = pending_.size() >= kMostPending;
  try {
    if (Socket socket = accept_from(listening_, Clock::now()))
      pending_.push_back({std::move(socket), Greeting(token_), Clock::now() + kPatience});
  } catch (const Error&) {
    // Strangers may hold all the descriptors that this process may open, so slow greetings are closed.
    if (pending_.empty()) throw;
    full_until_ = pending_.front().until - kPatience + kHurry;
    is_full = Clock::now() >= full_until_;
  }
  if (!is_full) return;
  refuse(pending_.front());
  pending_.pop_front();
}

std::optional<Reception::Guest> Reception::hear(Pending& pending) {
  const std::span<std::byte> room = pending.greeting.room();
  const ssize_t got = ::recv(pending.socket.descriptor(), room.data(), room.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  const Greeting::Next next =
      got > 0 ? pending.greeting.take(static_cast<std::size_t>(got)) : Greeting::Next(Greeting::Refused{});
  if (const auto* answer = std::get_if<Answer>(&next))
    if (::send(pending.socket.descriptor(), answer, sizeof *answer, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *answer)
      return {};
  if (std::holds_alternative<Greeting::More>(next)) return {};
  if (const auto* caller = std::get_if<Caller>(&next)) return Guest{*caller, std::move(pending.socket)};
  refuse(pending);
  return {};
}

std::optional<Reception::Guest> Reception::next(Clock::time_point deadline) {
  while (true) {
    const bool is_full = Clock::now() < full_until_ && !pending_.empty();
    std::vector<pollfd> asked = {{is_full ? -1 : listening_.descriptor(), POLLIN, 0}};
    Clock::time_point until = is_full ? std::min(deadline, full_until_) : deadline;
    for (const Pending& pending : pending_) {
      asked.push_back({pending.socket.descriptor(), POLLIN, 0});
      until = std::min(until, pending.until);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    const int ready =
        ::poll(asked.data(), asked.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno != EINTR) throw runtime_failure("waiting for connections");
    const Clock::time_point now = Clock::now();
    std::optional<Guest> guest;
    for (std::size_t i = 1; i < asked.size() && !guest && ready > 0; ++i)
      if (asked[i].revents != 0) guest = hear(pending_[i - 1]);
    for (Pending& pending : pending_)
      if (pending.socket && now > pending.until) refuse(pending);
    std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
    if (guest) return guest;
    if (ready > 0 && asked[0].revents != 0) accept();
    if (now >= deadline) return {};
  }
}

}  // namespace stretto::launch
