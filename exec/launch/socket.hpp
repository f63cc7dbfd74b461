#pragma once
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace stretto::launch {

using Clock = std::chrono::steady_clock;

// A TCP connection, or what waits for one. Owns its descriptor. The functions below throw Error(runtime) with the
// system's reason; those with a deadline also when it has passed.
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
  // From any thread: whoever reads or writes, here or at the other end, finds the connection closed.
  void shut_down() const;

 private:
  int descriptor_ = -1;
};

// Listens on all addresses of this machine; port 0: any that is free.
Socket listen_on(int port);
int port_of(const Socket& socket);
std::string address_of(const Socket& socket);       // this end's
std::string peer_address_of(const Socket& socket);  // the other's

// Connections report a machine that has vanished within some 10 s (keep-alive) and send at once (TCP_NODELAY).
Socket accept_from(const Socket& listening, Clock::time_point deadline);  // an empty one when the deadline has passed
// Tries again until the deadline: whoever listens may not have begun. A name that nobody knows is given up after 60 s.
Socket connect_to(const std::string& host, int port, Clock::time_point deadline);
// For connections whose other end may leave what it was sent unread for as long as it likes: by default the kernel
// takes one that has no room for 10 s for a machine that has vanished. Such a machine is then noticed after minutes.
void allow_slow_reader(const Socket& socket);

// All of it, or nothing and false where the connection has no room.
bool send_if_room(const Socket& socket, std::span<const std::byte> bytes);
// All of it, whatever it takes.
void send_all(const Socket& socket, std::span<const std::byte> bytes);
// False when the other end has closed before the first byte; an error when it does so later, or when the deadline has
// passed.
bool receive_all(const Socket& socket, std::span<std::byte> bytes,
                 Clock::time_point deadline = Clock::time_point::max());

}  // namespace stretto::launch
