#include "exec/comm/wires.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <variant>

#include "base/error.hpp"

namespace stretto::wire {
namespace {

using launch::Clock;
using launch::Socket;

struct Hello {
  std::int64_t rank = 0;
  std::uint32_t communicator = 0, reserved = 0;
};

using Keys = std::set<std::pair<std::uint32_t, std::int64_t>>;

// Communicator and peer of all that the rank sends, receives or takes part in.
Keys peers_of(const Schedule& schedule, const BoundProgram& program) {
  Keys keys;
  std::set<std::uint32_t> collectives;
  for (const BoundOp& op : program.ops) {
    const Work& work = schedule.operations[op.op].work;
    if (const auto* message = std::get_if<PointToPoint>(&work))
      keys.insert({message->communicator, peer_of(schedule, *message, program.rank).rank});
    else if (const auto* collective = std::get_if<Collective>(&work))
      collectives.insert(collective->communicator);
  }
  for (const std::uint32_t communicator : collectives)
    for (const std::int64_t member : members_of(schedule, schedule.communicators[communicator], program.rank))
      if (member != program.rank) keys.insert({communicator, member});
  return keys;
}

constexpr auto kSlice = std::chrono::milliseconds(200);  // between two looks at whether the group has failed

void require_no_failure(const launch::ProcessGroup& group) {
  if (const auto failure = group.failure()) throw runtime_failure(*failure);
}

Socket connect_unless_failed(const launch::ProcessGroup& group, const std::string& host, int port,
                             Clock::time_point deadline) {
  while (true) {
    try {
      return launch::connect_to(host, port, std::min(deadline, Clock::now() + kSlice));
    } catch (const Error&) {
      require_no_failure(group);
      if (Clock::now() >= deadline) throw;
    }
  }
}

}  // namespace

Wires::Wires(launch::ProcessGroup& group, const Schedule& schedule, const BoundProgram& program, double timeout_s) {
  const std::int64_t self = program.rank;
  const Keys keys = peers_of(schedule, program);
  const Socket listening = launch::listen_on(0);
  const std::string mine = fmt::format("{} {}", launch::port_of(listening), group.address());
  const std::vector<launch::Bytes> places = group.all_gather(std::as_bytes(std::span(mine)));
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  std::size_t expected = 0;
  for (const auto& [communicator, peer] : keys) {
    if (peer < self) {
      ++expected;  // it connects to us
      continue;
    }
    const launch::Bytes& place = places[static_cast<std::size_t>(peer)];
    const std::string text(reinterpret_cast<const char*>(place.data()), place.size());
    const std::size_t blank = text.find(' ');
    Socket socket = connect_unless_failed(group, text.substr(blank + 1), std::stoi(text.substr(0, blank)), deadline);
    launch::allow_slow_reader(socket);
    const Hello hello{self, communicator, 0};
    launch::send_all(socket, std::as_bytes(std::span(&hello, 1)));
    sockets_[{communicator, peer}] = std::move(socket);
  }
  while (expected > 0) {
    Socket socket = launch::accept_from(listening, std::min(deadline, Clock::now() + kSlice));
    require_no_failure(group);
    if (!socket && Clock::now() < deadline) continue;
    if (!socket)
      throw runtime_failure(fmt::format("{} connections of other ranks did not come within {} s", expected, timeout_s));
    Hello hello;
    try {
      const Clock::time_point soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
      if (!launch::receive_all(socket, std::as_writable_bytes(std::span(&hello, 1)), soon)) continue;
    } catch (const Error&) {
      continue;
    }
    const std::pair key{hello.communicator, hello.rank};
    if (hello.rank >= self || !keys.contains(key) || sockets_.contains(key)) continue;  // not one of ours
    launch::allow_slow_reader(socket);
    sockets_[key] = std::move(socket);
    --expected;
  }
}

Exchanged exchange(std::vector<Transfer> transfers, int abort, std::chrono::nanoseconds timeout) {
  using Outcome = Exchanged::Outcome;
  const auto is_over = [](const Transfer& t) { return t.out.empty() && t.in.empty(); };
  const auto first_left = [&] {
    const auto left = std::find_if_not(transfers.begin(), transfers.end(), is_over);
    return left == transfers.end() ? std::int64_t{0} : left->peer;
  };
  while (true) {
    std::vector<pollfd> asked = {{abort, POLLIN, 0}};
    std::vector<std::size_t> sender, receiver;  // [asked]: the first transfer of the socket that has bytes left
    constexpr std::size_t none = SIZE_MAX;
    sender.push_back(none);
    receiver.push_back(none);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& transfer = transfers[i];
      if (is_over(transfer)) continue;
      std::size_t at = 1;
      while (at < asked.size() && asked[at].fd != transfer.socket) ++at;
      if (at == asked.size()) {
        asked.push_back({transfer.socket, 0, 0});
        sender.push_back(none);
        receiver.push_back(none);
      }
      if (!transfer.out.empty() && sender[at] == none) sender[at] = i, asked[at].events |= POLLOUT;
      if (!transfer.in.empty() && receiver[at] == none) receiver[at] = i, asked[at].events |= POLLIN;
    }
    if (asked.size() == 1) return {};
    const auto timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
    const int ready = ::poll(asked.data(), asked.size(), static_cast<int>(std::min<std::int64_t>(timeout_ms, 1 << 30)));
    if (ready < 0) continue;  // a signal
    if (ready == 0) return {Outcome::timed_out, first_left()};
    if (asked[0].revents != 0) return {Outcome::aborted, first_left()};
    for (std::size_t at = 1; at < asked.size(); ++at) {
      if ((asked[at].revents & POLLOUT) != 0) {
        Transfer& transfer = transfers[sender[at]];
        const ssize_t sent =
            ::send(transfer.socket, transfer.out.data(), transfer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
          transfer.out = transfer.out.subspan(static_cast<std::size_t>(sent));
        else if (errno != EAGAIN && errno != EINTR)
          return {Outcome::closed, transfer.peer};
      }
      if ((asked[at].revents & POLLIN) != 0 && receiver[at] != none) {
        Transfer& transfer = transfers[receiver[at]];
        const ssize_t got = ::recv(transfer.socket, transfer.in.data(), transfer.in.size(), MSG_DONTWAIT);
        if (got > 0)
          transfer.in = transfer.in.subspan(static_cast<std::size_t>(got));
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
          return {Outcome::closed, transfer.peer};
      } else if ((asked[at].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
        return {Outcome::closed, transfers[sender[at] != none ? sender[at] : receiver[at]].peer};
      }
    }
  }
}

}  // namespace stretto::wire
