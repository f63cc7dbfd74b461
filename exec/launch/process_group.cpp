#include "exec/launch/process_group.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.hpp"

namespace stretto::launch {
namespace {

struct Header {
  std::uint32_t kind = 0;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
};
struct Hello {
  std::int64_t rank = 0, size = 0;
};
constexpr const char* kSilent = " has shown no sign of life for";
std::string silent(std::int64_t rank, double for_s) { return fmt::format("rank {}{} {:g} s", rank, kSilent, for_s); }
constexpr std::size_t kPiece_bytes = std::size_t{1} << 20;
constexpr double kSigns = 6;                                  // of life in the time after which their absence counts
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;  // of a message: more is no message of ours

template <class T>
std::span<const std::byte> bytes_of_value(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string list_of(const std::vector<std::int64_t>& ranks) {
  constexpr std::size_t shown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(shown, ranks.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

// A result is the parts of all ranks, each behind its size.
Bytes pack(const std::vector<Bytes>& parts) {
  Bytes packed;
  for (const Bytes& part : parts) {
    const std::uint64_t size = part.size();
    const auto head = bytes_of_value(size);
    packed.insert(packed.end(), head.begin(), head.end());
    packed.insert(packed.end(), part.begin(), part.end());
  }
  return packed;
}

std::vector<Bytes> unpack(const Bytes& packed) {
  std::vector<Bytes> parts;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= packed.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, packed.data() + at, sizeof size);
    at += sizeof size;
    const auto begin = packed.begin() + static_cast<std::ptrdiff_t>(at);
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    at += size;
  }
  return parts;
}

}  // namespace

ProcessGroup::ProcessGroup(const World& world, double timeout_s) : world_(world), timeout_s_(timeout_s) {
  if (world_.rank == 0)
    assemble();
  else
    join();
  // From here on, what goes wrong is heard of by the listener.
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) throw runtime_failure(fmt::format("waiting for other processes: {}", std::strerror(errno)));
  listener_ = std::thread([this] { listen(); });
  try {
    barrier();
  } catch (const Error&) {
    leave();
    throw;
  }
}

ProcessGroup::~ProcessGroup() { leave(); }

void ProcessGroup::leave() {
  on_failure({});
  {
    std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  // After a failure the listener may still be about to say so: no goodbye may come before it.
  if (failure())
    tell_failure();
  else
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) tell(peer, Kind::bye, {});
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  for (Peer& peer : peers_) peer.socket.shut_down();
  listener_.join();
  changed_.notify_all();
  if (living_.joinable()) living_.join();
  ::close(wake_);
}

void ProcessGroup::watch(double silent_s) {
  {
    std::lock_guard lock(mutex_);
    silent_s_ = silent_s;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);  // the listener waits for messages alone
  living_ = std::thread([this] { live(); });
}

void ProcessGroup::live() {
  std::unique_lock lock(mutex_);
  while (!is_leaving_) {
    lock.unlock();
    show_life();
    lock.lock();
    const std::chrono::duration<double> pause(silent_s_ / kSigns);
    changed_.wait_for(lock, pause, [&] { return is_leaving_; });
  }
}

void ProcessGroup::show_life() {
  for (Peer& to : peers_) {
    {
      std::lock_guard lock(mutex_);
      // What is being written is a sign itself; who has left needs none.
      if (to.is_written || to.has_left || is_leaving_) continue;
      to.is_written = true;
    }
    try {
      send_if_room(to.socket, bytes_of_value(Header{static_cast<std::uint32_t>(Kind::alive), 0, 0}));
    } catch (const Error&) {
      // Its connection says so to the listener.
    }
    {
      std::lock_guard lock(mutex_);
      to.is_written = false;
    }
    changed_.notify_all();
  }
}

void ProcessGroup::look_for_silence() {
  const Clock::time_point now = Clock::now();
  // Time in which this process was not there either, or listened to something long, is not the others' silence.
  const std::chrono::duration<double> since = now - std::exchange(looked_, now);
  const bool was_absent = since.count() > 2 * silent_s_ / kSigns;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Peer& of = peers_[peer];
    if (!of.alive || of.has_left) continue;
    if (was_absent) of.alive = now;
    if (std::chrono::duration<double>(now - *of.alive).count() > silent_s_)
      note_failure(silent(rank_of(peer), silent_s_));
  }
}

void ProcessGroup::assemble() {
  address_ = world_.address;
  peers_.resize(static_cast<std::size_t>(world_.size - 1));
  if (peers_.empty()) return;
  const Socket listening = world_.listening >= 0 ? Socket(world_.listening) : listen_on(world_.port);
  const Clock::time_point deadline = after(timeout_s_);
  for (std::size_t missing = peers_.size(); missing > 0;) {
    Socket socket = accept_from(listening, deadline);
    if (!socket) {
      std::vector<std::int64_t> ranks;
      for (std::size_t peer = 0; peer < peers_.size(); ++peer)
        if (!peers_[peer].socket) ranks.push_back(rank_of(peer));
      give_up(fmt::format("rank 0 waited {} s at {}:{} for {}", timeout_s_, world_.address, port_of(listening),
                          list_of(ranks)));
    }
    Header header;
    Hello hello;
    try {
      if (!receive_all(socket, std::as_writable_bytes(std::span(&header, 1)), after(5)) ||
          header.kind != static_cast<std::uint32_t>(Kind::hello) || header.bytes != sizeof hello ||
          !receive_all(socket, std::as_writable_bytes(std::span(&hello, 1)), after(5)))
        continue;  // somebody else's
    } catch (const Error&) {
      continue;
    }
    const bool fits = hello.rank >= 1 && hello.rank < world_.size && hello.size == world_.size;
    if (!fits || peers_[static_cast<std::size_t>(hello.rank - 1)].socket) {
      peers_.emplace_back().socket = std::move(socket);
      give_up(fits ? fmt::format("two processes say that they are rank {}", hello.rank)
                   : fmt::format("rank {} was started as one of {} processes, rank 0 as one of {}", hello.rank,
                                 hello.size, world_.size));
    }
    peers_[static_cast<std::size_t>(hello.rank - 1)].socket = std::move(socket);
    --missing;
  }
}

// Before there is a listener: those that have come are told.
void ProcessGroup::give_up(const std::string& reason) {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].socket) tell(peer, Kind::failure, std::as_bytes(std::span(reason)));
  throw runtime_failure(reason);
}

void ProcessGroup::join() {
  peers_.resize(1);
  try {
    peers_[0].socket = connect_to(world_.address, world_.port, after(timeout_s_));
  } catch (const Error& error) {
    throw runtime_failure(
        fmt::format("rank {} did not reach rank 0 within {} s: {}", world_.rank, timeout_s_, error.what()));
  }
  address_ = launch::address_of(peers_[0].socket);
  send(0, Kind::hello, bytes_of_value(Hello{world_.rank, world_.size}));
}

void ProcessGroup::send(std::size_t peer, Kind kind, std::span<const std::byte> bytes) {
  Peer& to = peers_[peer];
  {
    // Somebody who does not read must not keep others from hearing of a failure.
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(2), [&] { return !to.is_written; })) return to.socket.shut_down();
    to.is_written = true;
  }
  struct Release {
    ProcessGroup& group;
    Peer& to;
    ~Release() {
      {
        std::lock_guard lock(group.mutex_);
        to.is_written = false;
      }
      group.changed_.notify_all();
    }
  } release{*this, to};
  const Header header{static_cast<std::uint32_t>(kind), 0, bytes.size()};
  const auto head = bytes_of_value(header);
  if (bytes.size() > kPiece_bytes) {
    send_all(to.socket, head);
    return send_all(to.socket, bytes);
  }
  // In one call: whoever is stopped between two would leave the other end with half a message.
  Bytes whole(head.begin(), head.end());
  whole.insert(whole.end(), bytes.begin(), bytes.end());
  send_all(to.socket, whole);
}

// The same to somebody who may be gone.
void ProcessGroup::tell(std::size_t peer, Kind kind, std::span<const std::byte> bytes) {
  try {
    send(peer, kind, bytes);
  } catch (const Error&) {
    // Its connection says so to the listener.
  }
}

// What has failed, once it is known: it stays what it is.
void ProcessGroup::tell_failure() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    tell(peer, kind_of(failure_kind_), std::as_bytes(std::span(*failure_)));
}

void ProcessGroup::listen() {
  std::vector<pollfd> asked;
  for (const Peer& peer : peers_) asked.push_back({peer.socket.descriptor(), POLLIN, 0});
  asked.push_back({wake_, POLLIN, 0});
  looked_ = Clock::now();
  while (true) {
    double silent_s = 0;
    {
      std::lock_guard lock(mutex_);
      silent_s = silent_s_;
      if (is_leaving_) return;
    }
    const int most_ms = silent_s > 0 ? std::max(1, static_cast<int>(1000 * silent_s / kSigns)) : -1;
    if (::poll(asked.data(), asked.size(), most_ms) < 0) continue;  // a signal
    if (asked.back().revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
    }
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (asked[peer].revents != 0 && !hear(peer)) asked[peer].fd = -1;
    if (silent_s > 0) look_for_silence();
  }
}

bool ProcessGroup::hear(std::size_t peer) {
  Peer& from = peers_[peer];
  Header header;
  Bytes bytes;
  bool is_closed = false;
  double silent_s = 0;
  {
    std::lock_guard lock(mutex_);
    silent_s = silent_s_;
  }
  Clock::time_point late = Clock::time_point::max();
  const auto latest = [&] { return late = silent_s > 0 ? after(silent_s) : late; };
  try {
    is_closed = !receive_all(from.socket, std::as_writable_bytes(std::span(&header, 1)), latest());
    if (header.bytes > kMostBytes) is_closed = true;
    if (!is_closed) {
      bytes.resize(header.bytes);
      // Piece by piece: a long message takes its time, and who stops in the middle of one is silent too.
      for (std::span<std::byte> left(bytes); !left.empty() && !is_closed;) {
        const std::span<std::byte> piece = left.first(std::min(kPiece_bytes, left.size()));
        is_closed = !receive_all(from.socket, piece, latest());
        left = left.subspan(piece.size());
      }
    }
  } catch (const Error&) {
    if (Clock::now() >= late) {
      note_failure(silent(rank_of(peer), silent_s));
      return false;
    }
    is_closed = true;
  } catch (const std::bad_alloc&) {
    note_failure(fmt::format("rank {}: no memory for {} bytes from rank {}", world_.rank, header.bytes, rank_of(peer)));
    return false;
  }
  if (is_closed) {
    bool is_expected = false;
    {
      std::lock_guard lock(mutex_);
      is_expected = from.has_left || is_leaving_;
    }
    if (!is_expected)
      note_failure(fmt::format("rank {} was lost: its connection was closed without a word", rank_of(peer)));
    return false;
  }
  // While somebody writes to us it gives no other sign.
  if (from.alive) from.alive = Clock::now();
  switch (static_cast<Kind>(header.kind)) {
    case Kind::part:
    case Kind::result: {
      std::lock_guard lock(mutex_);
      from.parts.push_back(std::move(bytes));
      break;
    }
    case Kind::failure:
    case Kind::wrong_input:
      note_failure(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                   header.kind == static_cast<std::uint32_t>(Kind::failure) ? ErrorKind::runtime : ErrorKind::input);
      break;
    case Kind::bye: {
      std::lock_guard lock(mutex_);
      from.has_left = true;
      break;
    }
    case Kind::alive:
      from.alive = Clock::now();
      return true;
    case Kind::hello:
      break;
  }
  changed_.notify_all();
  return true;
}

void ProcessGroup::note_failure(const std::string& reason, ErrorKind kind) {
  {
    std::lock_guard lock(mutex_);
    if (failure_ || is_leaving_) return;
    failure_ = reason;
    failure_kind_ = kind;
  }
  changed_.notify_all();
  if (world_.rank == 0) tell_failure();
  std::lock_guard lock(acting_);
  if (act_) std::exchange(act_, {})(reason);
}

void ProcessGroup::fail(const std::string& reason, ErrorKind kind) {
  const std::string named = reason.starts_with("rank ") ? reason : fmt::format("rank {}: {}", world_.rank, reason);
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  if (world_.rank != 0) {
    // Rank 0 answers everybody with what failed first, so that all say the same.
    tell(0, kind_of(kind), std::as_bytes(std::span(named)));
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(2), [&] { return failure_.has_value(); });
  }
  note_failure(named, kind);
}

std::optional<std::string> ProcessGroup::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

bool ProcessGroup::speaks_for_failure() const {
  const std::string reason = failure().value_or("");
  if (reason.starts_with(fmt::format("rank {}: ", world_.rank))) return true;  // it says so itself
  // Who is silent will not; who was lost has died, which whoever started it says.
  if (reason.find(kSilent) == std::string::npos) return false;
  return world_.rank == (reason.starts_with("rank 0 ") ? 1 : 0);
}

void ProcessGroup::on_failure(std::function<void(const std::string&)> act) {
  std::lock_guard lock(acting_);
  act_ = std::move(act);
  // Asked behind the lock: a failure that is noted from here on waits for it, and then finds `act`.
  const std::optional<std::string> reason = failure();
  if (reason && act_) std::exchange(act_, {})(*reason);
}

template <class Ready>
void ProcessGroup::wait(std::unique_lock<std::mutex>& lock, double most_s, Ready ready) {
  std::vector<std::int64_t> missing, left;
  const auto is_over = [&] {
    if (failure_) return true;
    missing.clear();
    left.clear();
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (ready(peers_[peer])) continue;
      missing.push_back(rank_of(peer));
      if (peers_[peer].has_left) left.push_back(rank_of(peer));
    }
    return missing.empty() || !left.empty();
  };
  changed_.wait_until(lock, after(most_s), is_over);
  if (failure_) throw Error(failure_kind_, *failure_);
  if (missing.empty()) return;
  throw runtime_failure(left.empty() ? fmt::format("waited {} s for {}", most_s, list_of(missing))
                                     : list_of(left) + " ended before the others");
}

// Rank 0: everybody's part.
std::vector<Bytes> ProcessGroup::collect(std::span<const std::byte> mine) {
  std::vector<Bytes> all;
  all.emplace_back(mine.begin(), mine.end());
  std::unique_lock lock(mutex_);
  wait(lock, timeout_s_, [](const Peer& peer) { return !peer.parts.empty(); });
  for (Peer& peer : peers_) {
    all.push_back(std::move(peer.parts.front()));
    peer.parts.pop_front();
  }
  return all;
}

std::vector<Bytes> ProcessGroup::gather(std::span<const std::byte> mine) {
  if (world_.rank == 0) return collect(mine);
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Error(failure_kind_, *failure_);
  }
  tell(0, Kind::part, mine);
  return {};
}

std::vector<Bytes> ProcessGroup::all_gather(std::span<const std::byte> mine) {
  if (world_.rank == 0) {
    std::vector<Bytes> all = collect(mine);
    const Bytes packed = pack(all);
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) tell(peer, Kind::result, packed);
    return all;
  }
  gather(mine);
  Bytes packed;
  {
    std::unique_lock lock(mutex_);
    wait(lock, 2 * timeout_s_, [](const Peer& peer) { return !peer.parts.empty(); });
    packed = std::move(peers_[0].parts.front());
    peers_[0].parts.pop_front();
  }
  return unpack(packed);
}

bool ProcessGroup::any(bool mine) {
  const std::byte flag{mine};
  const std::vector<Bytes> all = all_gather(std::span(&flag, 1));
  return std::any_of(all.begin(), all.end(), [](const Bytes& bytes) { return bytes.at(0) != std::byte{0}; });
}

}  // namespace stretto::launch
