#include "exec/comm/wires.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <future>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "exec/launch/greeting.hpp"
#include "model/schedule/partners.hpp"

namespace stretto::wire {
namespace {

using launch::Clock;
using launch::Socket;

void require_no_failure(const launch::ProcessGroup& group) {
  if (const auto failure = group.failure()) throw runtime_failure(*failure);
}

using Keys = std::set<std::pair<std::uint32_t, std::int64_t>>;

// Returns the communicator and peer of all sends, receives and collectives of the rank.
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

// Answers until all `expected` processes have called, the group fails or `is_over`.
std::map<std::pair<std::uint32_t, std::int64_t>, Socket> answer(launch::ProcessGroup& group, Socket listening,
                                                                Keys expected, double timeout_s,
                                                                const std::atomic<bool>& is_over) {
  std::map<std::pair<std::uint32_t, std::int64_t>, Socket> sockets;
  launch::Reception reception(std::move(listening), group.world().token);
  const Clock::time_point deadline = launch::time_for(timeout_s, 0);
  while (!expected.empty() && !is_over) {
    constexpr auto slice = std::chrono::milliseconds(200);  // time between two checks whether the group has failed
    std::optional<launch::Reception::Guest> guest = reception.next(std::min(deadline, Clock::now() + slice));
    require_no_failure(group);
    if (guest) {
      if (guest->caller.size != group.size()) continue;
      const std::pair key{guest->caller.communicator, guest->caller.rank};
      if (expected.erase(key) == 1) sockets[key] = std::move(guest->socket);
    } else if (Clock::now() >= deadline) {
      throw runtime_failure(fmt::format("rank {}: {} connections, the first of rank {}, did not come within {:g} s{}",
                                        group.rank(), expected.size(), expected.begin()->second, timeout_s,
                                        reception.refused()));
    }
  }
  return sockets;
}

}  // namespace

Wires::Wires(launch::ProcessGroup& group, const Schedule& schedule, const BoundProgram& program, double timeout_s) {
  const std::int64_t self = program.rank;
  const Keys keys = peers_of(schedule, program);
  Socket listening = launch::listen_on(group.address(), 0);
  constexpr std::size_t most = 256;  // bytes of an address
  const std::string mine = fmt::format("{} {}", launch::port_of(listening), group.address()).substr(0, most);
  const std::vector<launch::Bytes> places = group.all_gather(std::as_bytes(std::span(mine)), most);
  Keys expected;
  std::copy_if(keys.begin(), keys.end(), std::inserter(expected, expected.end()),
               [&](const auto& key) { return key.second < self; });
  // Answering is concurrent with calling; otherwise every process would wait for those that call others first.
  std::atomic<bool> is_over{false};
  auto answered = std::async(std::launch::async, answer, std::ref(group), std::move(listening), std::move(expected),
                             timeout_s, std::cref(is_over));
  try {
    for (const auto& [communicator, peer] : keys) {
      if (peer < self) continue;  // the peer calls this process
      const launch::Bytes& place = places[static_cast<std::size_t>(peer)];
      const std::string text(reinterpret_cast<const char*>(place.data()), place.size());
      int port = 0;
      const auto [blank, error] = std::from_chars(text.data(), text.data() + text.size(), port);
      if (error != std::errc{} || *blank != ' ' || port < 1 || port > 65535)
        throw runtime_failure(fmt::format("rank {} gave \"{}\" for its address", peer, printable(text)));
      sockets_[{communicator, peer}] =
          launch::call(blank + 1, port, launch::time_for(timeout_s, 0), group.world().token,
                       {self, group.size(), communicator, 0}, [&](const std::string&) { require_no_failure(group); });
    }
  } catch (...) {
    is_over = true;
    throw;
  }
  sockets_.merge(answered.get());
  for (const auto& [key, socket] : sockets_) launch::allow_slow_reader(socket);
}

Exchanged exchange(std::vector<Transfer> transfers, int abort, std::chrono::nanoseconds timeout) {
  using Outcome = Exchanged::Outcome;
  const auto is_over = [](const Transfer& t) { return t.out.empty() && t.in.empty(); };
  const auto first_left = [&] {
    const auto left = std::find_if_not(transfers.begin(), transfers.end(), is_over);
    return left == transfers.end() ? std::int64_t{0} : left->peer;
  };
  std::size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.out.size() + transfer.in.size();
  const Clock::time_point deadline = launch::time_for(std::chrono::duration<double>(timeout).count(), bytes);
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
    const auto left = std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0));
    const auto timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(std::min(timeout, left)).count();
    const int ready = ::poll(asked.data(), asked.size(), static_cast<int>(std::min<std::int64_t>(timeout_ms, 1 << 30)));
    if (ready < 0) continue;  // interrupted by a signal
    if (ready == 0 || left.count() == 0) return {Outcome::timed_out, first_left()};
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
