#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace stretto::launch {

using Clock = std::chrono::steady_clock;

// A TCP connection, or a socket that listens for one. Owns its descriptor. The functions below throw Error(runtime)
// with the system's reason; those with a deadline also when it has passed.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close();
  // May be called from any thread: reads and writes at both ends find the connection closed.
  void shut_down() const;

 private:
  int descriptor_ = -1;
};

// Returns whether a name or number means this machine: "localhost", 127.x.x.x, ::1.
bool is_loopback(const std::string& host);
// Listens at the first address of `host` that is this machine's and not its loopback, unless `host` is the loopback;
// where there is none, as with a gateway between, at all addresses of this machine. Port 0: any free port.
Socket listen_on(const std::string& host, int port);
int port_of(const Socket& socket);
std::string address_of(const Socket& socket);       // address of this end
std::string peer_address_of(const Socket& socket);  // address of the other end

// Connections report a machine that has vanished within some 10 s (keep-alive) and send at once (TCP_NODELAY).
Socket accept_from(const Socket& listening, Clock::time_point deadline);  // an empty one when the deadline has passed
// Retries until the deadline, because the listener may start later; an unknown host name is given up after 60 s.
// `waiting` gets the reason of each failed attempt, and may throw.
using Waiting = std::function<void(const std::string& reason)>;
Socket connect_to(const std::string& host, int port, Clock::time_point deadline, const Waiting& waiting = {});
// For connections whose receiver may leave data unread indefinitely. By default the kernel closes a connection that has
// no room for 10 s, as if the machine had vanished. With this, a vanished machine is noticed only after minutes.
void allow_slow_reader(const Socket& socket);

// Sends all bytes, or none and returns false when the connection has no room. For messages of a few bytes.
bool send_if_room(const Socket& socket, std::span<const std::byte> bytes);
// Deadline of a transfer: now + base_s + bytes at 1 MB/s, which is slower than any network used for training. A peer
// that reads or writes more slowly is given up.
Clock::time_point time_for(double base_s, std::size_t bytes);
void send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline);
// Returns false when the other end has closed before the first byte; throws when it closes later, or when the deadline
// has passed.
bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline);

}  // namespace stretto::launch
