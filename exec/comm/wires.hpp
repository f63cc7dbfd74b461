#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "exec/launch/process_group.hpp"
#include "exec/launch/socket.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::wire {

// TCP connections from this process to those that its rank communicates with: one for each communicator and peer, so
// that the messages of a communicator stay in order and two communicators do not wait for each other.
class Wires {
 public:
  // Connects to the peers of all communication in `program`; all processes of the group must do so, with their own
  // programs. Throws Error(runtime) when one does not arrive within timeout_s, or the group fails.
  Wires(launch::ProcessGroup& group, const Schedule& schedule, const BoundProgram& program, double timeout_s);

  const launch::Socket& to(std::uint32_t communicator, std::int64_t peer) const {
    return sockets_.at({communicator, peer});
  }

 private:
  std::map<std::pair<std::uint32_t, std::int64_t>, launch::Socket> sockets_;
};

// Bytes to one peer, and bytes from it.
struct Transfer {
  std::int64_t peer = 0;
  int socket = -1;
  std::span<const std::byte> out;
  std::span<std::byte> in;
};

struct Exchanged {
  enum class Outcome { done, aborted, timed_out, closed } outcome = Outcome::done;
  std::int64_t peer = 0;  // peer of the transfer that did not end
};
// Moves all transfers, in the order in which peers are ready; transfers of one socket go one after the other. Sleeps
// while there is nothing to do. `abort` is a descriptor that becomes readable when all must end. `timeout` limits the
// time without a moved byte; it also limits all transfers together, in addition to the time of their bytes at 1 MB/s.
// After any outcome but `done` the sockets must not be used again.
Exchanged exchange(std::vector<Transfer> transfers, int abort, std::chrono::nanoseconds timeout);

}  // namespace stretto::wire
