#include "exec/launch/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"

namespace stretto::launch {
namespace {

Error failure(const std::string& what) { return runtime_failure(what + ": " + std::strerror(errno)); }

// Returns false when the deadline has passed.
bool wait_for(int descriptor, short what, Clock::time_point deadline) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
    }
    pollfd asked{descriptor, what, 0};
    const int ready = ::poll(&asked, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) throw failure("waiting for a connection");
  }
}

void configure(const Socket& socket) {
  const int on = 1, idle_s = 5, interval_s = 1, probes = 5;
  const unsigned unanswered_ms = 10000;
  const auto set = [&](int level, int option, const auto& value) {
    // a refusal only makes messages less prompt
    ::setsockopt(socket.descriptor(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, on);
  set(SOL_SOCKET, SO_KEEPALIVE, on);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
}

constexpr auto kNaming = std::chrono::seconds(60);  // a name service that starts with the job should run by then

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text, sizeof text);
  const std::string result = text;
  return result.starts_with("::ffff:") ? result.substr(7) : result;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}
void Socket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Socket listen_on(const std::string& host, int port) {
  const std::string where = fmt::format("listening at {}:{}", host, port);
  const auto listen_at = [](const sockaddr* address, socklen_t size) {
    Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1, off = 0;
    if (!socket) return Socket();
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket.descriptor(), address, size) != 0 || ::listen(socket.descriptor(), SOMAXCONN) != 0)
      return Socket();
    return socket;
  };
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      sockaddr_storage stored{};
      std::memcpy(&stored, address->ai_addr, address->ai_addrlen);
      // Many machines resolve their own name to their loopback address, which other machines cannot reach.
      if (is_loopback(text_of(stored)) && !is_loopback(host)) continue;
      if (Socket socket = listen_at(address->ai_addr, address->ai_addrlen)) return socket;
      if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) throw failure(where);
    }
  }
  if (is_loopback(host)) throw failure(where);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  any.sin6_port = htons(static_cast<std::uint16_t>(port));
  if (Socket socket = listen_at(reinterpret_cast<const sockaddr*>(&any), sizeof any)) return socket;
  sockaddr_in any4{};  // a machine without IPv6
  any4.sin_family = AF_INET;
  any4.sin_port = any.sin6_port;
  if (Socket socket = listen_at(reinterpret_cast<const sockaddr*>(&any4), sizeof any4)) return socket;
  throw failure(where);
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

std::string address_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return text_of(address);
}

std::string peer_address_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return text_of(address);
}

Socket accept_from(const Socket& listening, Clock::time_point deadline) {
  while (wait_for(listening.descriptor(), POLLIN, deadline)) {
    Socket socket(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
      configure(socket);
      return socket;
    }
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) throw failure("accepting a connection");
  }
  return {};
}

namespace {

// Returns whether a socket is its own peer. While no process listens at a port of this machine, the system may choose
// that very port for the connecting end (simultaneous open, RFC 793).
bool is_own(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  return ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
         ::getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
         here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

}  // namespace

Socket connect_to(const std::string& host, int port, Clock::time_point deadline, const Waiting& waiting) {
  const std::string where = host + ":" + std::to_string(port);
  std::string reason = "no address";
  const Clock::time_point name_deadline = std::min(deadline, Clock::now() + kNaming);
  while (true) {
    bool has_name = true;
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
      reason = ::gai_strerror(error);
      has_name = false;
    } else {
      const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
      for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
        Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket && (errno == EMFILE || errno == ENFILE)) throw failure("connecting to " + where);
        if (!socket) {
          reason = std::strerror(errno);
          continue;
        }
        int error = ::connect(socket.descriptor(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
          if (!wait_for(socket.descriptor(), POLLOUT, std::min(deadline, Clock::now() + std::chrono::seconds(5)))) {
            reason = "no answer";
            continue;
          }
          socklen_t size = sizeof error;
          ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
        if (error == 0 && is_own(socket)) error = ECONNREFUSED;
        if (error != 0) {
          reason = std::strerror(error);
          continue;
        }
        ::fcntl(socket.descriptor(), F_SETFL, ::fcntl(socket.descriptor(), F_GETFL) & ~O_NONBLOCK);
        configure(socket);
        return socket;
      }
    }
    if (Clock::now() >= (has_name ? deadline : name_deadline))
      throw runtime_failure("connecting to " + where + ": " + reason);
    if (waiting) waiting("connecting to " + where + ": " + reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void allow_slow_reader(const Socket& socket) {
  const unsigned system_default = 0;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &system_default, sizeof system_default);
}

Clock::time_point time_for(double base_s, std::size_t bytes) {
  constexpr double least_bytes_per_s = 1e6;
  const std::chrono::duration<double> time(base_s + static_cast<double>(bytes) / least_bytes_per_s);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

bool send_if_room(const Socket& socket, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (sent < 0) throw failure("sending");
  // A message that was begun must be finished.
  send_all(socket, bytes.subspan(static_cast<std::size_t>(sent)), time_for(1, bytes.size()));
  return true;
}

void send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) throw failure("sending");
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (!bytes.empty() && !wait_for(socket.descriptor(), POLLOUT, deadline))
      throw runtime_failure("sending: nobody reads what was sent");
  }
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline) {
  bool any = false;
  while (!bytes.empty()) {
    if (!wait_for(socket.descriptor(), POLLIN, deadline)) throw runtime_failure("receiving: nothing came in time");
    const ssize_t got = ::recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw failure("receiving");
    if (got == 0) {
      if (!any) return false;
      throw runtime_failure("receiving: the connection was closed");
    }
    any = true;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace stretto::launch
