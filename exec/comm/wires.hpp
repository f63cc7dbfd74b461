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
// that what a communicator carries stays in order and two of them do not wait for each other.
class Wires {
 public:
  // Connects to the peers of all communication in `program`; the processes of the group must all do so, with their own
  // programs. Throws Error(runtime) when one does not come within timeout_s, or the group fails.
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
  std::int64_t peer = 0;  // of the transfer that did not come to its end
};
// Moves all of them, in whatever order the peers are ready; those of one socket one behind the other. Sleeps while
// there is nothing to do. `abort` is a descriptor that becomes readable when all is to end. `timeout`: without a byte
// moved; also for all of them, beside what their bytes take at 1 MB/s. After anything but `done` the sockets are good
// for nothing more.
Exchanged exchange(std::vector<Transfer> transfers, int abort, std::chrono::nanoseconds timeout);

}  // namespace stretto::wire
