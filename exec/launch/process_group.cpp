#include "exec/launch/process_group.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "exec/launch/greeting.hpp"

namespace stretto::launch {
namespace {

std::string silent(std::int64_t rank, double for_s) {
  return fmt::format("rank {} has shown no sign of life for {:g} s", rank, for_s);
}
constexpr double kSigns = 6;              // heartbeats in the time after which their absence counts
constexpr double kShort_s = 2;            // time for messages that the peer should read at once
constexpr std::size_t kMostUnasked = 64;  // parts of one rank that no call has asked for yet
// Returns the waiting time after which the process says what it waits for.
Clock::duration word_after(double timeout_s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(10.0, timeout_s / 4)));
}

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

std::span<const std::byte> bytes_of_reason(const std::string& reason) {
  return std::as_bytes(std::span(reason)).first(std::min<std::size_t>(reason.size(), kMostOfAReason));
}

template <class Run>
std::thread start_thread(Run run) {
  try {
    return std::thread(run);
  } catch (const std::system_error& error) {
    throw runtime_failure(std::string("starting a thread: ") + error.what());
  }
}

[[noreturn]] void refuse(std::int64_t rank, std::uint64_t bytes, std::size_t most) {
  throw runtime_failure(fmt::format("rank {} gave {} bytes where at most {} were expected", rank, bytes, most));
}

}  // namespace

ProcessGroup::ProcessGroup(const World& world, double timeout_s, const Say& say)
    : world_(world), timeout_s_(timeout_s) {
  if (world_.rank == 0)
    assemble(say);
  else
    join(say);
  // From here on the listener notices failures.
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) throw runtime_failure(fmt::format("waiting for other processes: {}", std::strerror(errno)));
  try {
    listener_ = start_thread([this] { listen(); });
  } catch (const Error& error) {
    ::close(wake_);
    give_up(fmt::format("rank {}: {}", world_.rank, error.what()));
  }
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
  // After a failure the listener may still be about to report it: no goodbye may precede the report.
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
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);  // the listener waits only for messages
  living_ = start_thread([this] { live(); });
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
      // A message in progress is a heartbeat itself; a peer that has left needs none.
      if (to.is_written || to.has_left || is_leaving_) continue;
      to.is_written = true;
    }
    try {
      send_if_room(to.socket, bytes_of_value(Header{}));
    } catch (const Error&) {
      // The broken connection informs the listener.
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
  // Time in which this process itself was stopped, or received something long, does not count as the others' silence.
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

void ProcessGroup::assemble(const Say& say) {
  address_ = world_.address;
  peers_.resize(static_cast<std::size_t>(world_.size - 1));
  if (peers_.empty()) return;
  Reception reception(world_.listening >= 0 ? Socket(world_.listening) : listen_on(world_.address, world_.port),
                      world_.token);
  const std::string where = fmt::format("{}:{}", world_.address, reception.port());
  const Clock::time_point deadline = after(timeout_s_);
  const Clock::duration word = word_after(timeout_s_);
  Clock::time_point next_word = Clock::now() + word;
  for (std::size_t missing = peers_.size(); missing > 0;) {
    std::optional<Reception::Guest> guest = reception.next(std::min(deadline, next_word));
    if (!guest) {
      std::vector<std::int64_t> ranks;
      for (std::size_t peer = 0; peer < peers_.size(); ++peer)
        if (!peers_[peer].socket) ranks.push_back(rank_of(peer));
      const Clock::time_point now = Clock::now();
      const std::string whom = fmt::format("at {} for {}{}", where, list_of(ranks), reception.refused());
      if (now >= deadline) give_up(fmt::format("rank 0 waited {:g} s {}", timeout_s_, whom));
      if (now >= next_word && say) say(fmt::format("rank 0 waits {}", whom));
      while (next_word <= now) next_word += 3 * word;
      continue;
    }
    const Caller& caller = guest->caller;
    if (caller.communicator != kNoCommunicator) continue;
    const bool fits = caller.rank >= 1 && caller.rank < world_.size && caller.size == world_.size;
    if (!fits || peers_[static_cast<std::size_t>(caller.rank - 1)].socket) {
      peers_.emplace_back().socket = std::move(guest->socket);
      give_up(fits ? fmt::format("two processes say that they are rank {}", caller.rank)
                   : fmt::format("rank {} was started as one of {} processes, rank 0 as one of {}", caller.rank,
                                 caller.size, world_.size));
    }
    peers_[static_cast<std::size_t>(caller.rank - 1)].socket = std::move(guest->socket);
    --missing;
  }
}

// Informs the processes that have connected why the group cannot be formed, before there is a listener.
void ProcessGroup::give_up(const std::string& reason) {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].socket) tell(peer, Kind::failure, bytes_of_reason(reason));
  throw runtime_failure(reason);
}

void ProcessGroup::join(const Say& say) {
  peers_.resize(1);
  const Clock::duration word = word_after(timeout_s_);
  Clock::time_point next_word = Clock::now() + word;
  const auto waiting = [&](const std::string& reason) {
    if (world_.rank != 1 || !say || Clock::now() < next_word) return;
    say("rank 1 waits for rank 0: " + reason);
    next_word = Clock::now() + 3 * word;
  };
  try {
    peers_[0].socket = call(world_.address, world_.port, after(timeout_s_), world_.token,
                            {world_.rank, world_.size, kNoCommunicator, 0}, waiting);
  } catch (const WrongToken& error) {
    throw runtime_failure(error.what());
  } catch (const Error& error) {
    throw runtime_failure(
        fmt::format("rank {} did not reach rank 0 within {:g} s: {}", world_.rank, timeout_s_, error.what()));
  }
  address_ = launch::address_of(peers_[0].socket);
}

void ProcessGroup::send(std::size_t peer, Kind kind, std::span<const std::byte> bytes) {
  Peer& to = peers_[peer];
  {
    // A peer that does not read must not keep the others from hearing of a failure.
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(kShort_s), [&] { return !to.is_written; }))
      return to.socket.shut_down();
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
  const Header header{kind, 0, bytes.size()};
  const auto head = bytes_of_value(header);
  const bool is_data = kind == Kind::part || kind == Kind::result;
  const Clock::time_point deadline = time_for(is_data ? timeout_s_ : kShort_s, bytes.size());
  try {
    if (bytes.size() > kSmallPart) {
      send_all(to.socket, head, deadline);
      return send_all(to.socket, bytes, deadline);
    }
    // Header and bytes are sent in one call: a process that is stopped between two calls would leave the other end with
    // half a message.
    Bytes whole(head.begin(), head.end());
    whole.insert(whole.end(), bytes.begin(), bytes.end());
    send_all(to.socket, whole, deadline);
  } catch (const Error&) {
    to.socket.shut_down();  // nothing can follow half a message
    throw;
  }
}

// Sends a message to a peer that may be gone, and ignores errors.
void ProcessGroup::tell(std::size_t peer, Kind kind, std::span<const std::byte> bytes) {
  try {
    send(peer, kind, bytes);
  } catch (const Error&) {
    // The broken connection informs the listener.
  }
}

// Sends the first failure to the peers; it never changes.
void ProcessGroup::tell_failure() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    tell(peer, kind_of(failure_kind_), bytes_of_reason(*failure_));
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
    if (::poll(asked.data(), asked.size(), most_ms) < 0) continue;  // interrupted by a signal
    if (asked.back().revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
    }
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
      if (asked[peer].revents != 0 && !hear(peer)) asked[peer].fd = -1;
    if (silent_s > 0) look_for_silence();
  }
}

Limits ProcessGroup::limits(std::size_t peer) const {
  std::lock_guard lock(mutex_);
  if (world_.rank == 0) return {true, std::max(kSmallPart, peers_[peer].granted)};
  return {false, awaited_};
}

bool ProcessGroup::hear(std::size_t peer) {
  Peer& from = peers_[peer];
  try {
    // The bound lets other peers be heard, too.
    for (int piece = 0; piece < 64; ++piece) {
      const std::span<std::byte> room = from.inbox.room();
      const ssize_t got = ::recv(from.socket.descriptor(), room.data(), room.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (got <= 0) {
        bool is_expected = false;
        {
          std::lock_guard lock(mutex_);
          is_expected = from.has_left || is_leaving_;
        }
        if (!is_expected)
          note_failure(fmt::format("rank {} was lost: its connection was closed without a word", rank_of(peer)));
        return false;
      }
      // While a peer sends a long message it sends no other heartbeat.
      if (from.alive) from.alive = Clock::now();
      if (std::optional<ControlMessage> message = from.inbox.take(static_cast<std::size_t>(got), limits(peer)))
        take(peer, std::move(*message));
    }
    return true;
  } catch (const Error& error) {
    note_failure(fmt::format("rank {} {}", rank_of(peer), error.what()));
  } catch (const std::bad_alloc&) {
    note_failure(fmt::format("rank {}: no memory for what rank {} sends", world_.rank, rank_of(peer)));
  }
  return false;
}

void ProcessGroup::take(std::size_t peer, ControlMessage message) {
  Peer& from = peers_[peer];
  switch (message.kind) {
    case Kind::part:
    case Kind::result: {
      std::lock_guard lock(mutex_);
      if (from.parts.size() >= kMostUnasked) throw runtime_failure("gave more than was asked for");
      if (message.bytes.size() > kSmallPart) from.granted = 0;
      awaited_.reset();
      from.parts.push_back(std::move(message.bytes));
      break;
    }
    case Kind::offer: {
      std::lock_guard lock(mutex_);
      if (from.offered > 0 || from.granted > 0) throw runtime_failure("offered more than was asked for");
      std::memcpy(&from.offered, message.bytes.data(), sizeof from.offered);
      break;
    }
    case Kind::come: {
      std::lock_guard lock(mutex_);
      from.may_give = true;
      break;
    }
    case Kind::failure:
    case Kind::wrong_input: {
      std::string reason = printable({reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()});
      if (!reason.starts_with("rank ")) reason = fmt::format("rank {}: {}", rank_of(peer), reason);
      note_failure(reason, message.kind == Kind::failure ? ErrorKind::runtime : ErrorKind::input);
      break;
    }
    case Kind::bye: {
      std::lock_guard lock(mutex_);
      from.has_left = true;
      break;
    }
    case Kind::alive:
      from.alive = Clock::now();
      return;
  }
  changed_.notify_all();
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
    // Rank 0 answers every process with the first failure, so that all report the same.
    tell(0, kind_of(kind), bytes_of_reason(named));
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(2), [&] { return failure_.has_value(); });
  }
  note_failure(named, kind);
}

std::optional<std::string> ProcessGroup::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void ProcessGroup::on_failure(std::function<void(const std::string&)> act) {
  std::lock_guard lock(acting_);
  act_ = std::move(act);
  // The question is asked with the lock held: a failure that is noted later waits for the lock, and then finds `act`.
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

// Rank 0: collects the parts of all ranks.
std::vector<Bytes> ProcessGroup::collect(std::span<const std::byte> mine, std::size_t most) {
  std::vector<Bytes> all;
  all.emplace_back(mine.begin(), mine.end());
  std::unique_lock lock(mutex_);
  wait(lock, timeout_s_, [](const Peer& peer) { return !peer.parts.empty() || peer.offered > 0; });
  std::uint64_t largest = 0;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Peer& of = peers_[peer];
    if (!of.parts.empty()) continue;
    if (of.offered > most) refuse(rank_of(peer), of.offered, most);
    largest = std::max(largest, of.granted = std::exchange(of.offered, 0));
    lock.unlock();
    tell(peer, Kind::come, {});
    lock.lock();
  }
  wait(lock, timeout_s_ + double(largest) * 1e-6, [](const Peer& peer) { return !peer.parts.empty(); });
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    all.push_back(std::move(peers_[peer].parts.front()));
    peers_[peer].parts.pop_front();
    if (all.back().size() > most) refuse(rank_of(peer), all.back().size(), most);
  }
  return all;
}

std::vector<Bytes> ProcessGroup::gather(std::span<const std::byte> mine, std::size_t most) {
  assert(mine.size() <= most);
  if (world_.rank == 0) return collect(mine, most);
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Error(failure_kind_, *failure_);
  }
  if (mine.size() > kSmallPart) {
    tell(0, Kind::offer, bytes_of_value(static_cast<std::uint64_t>(mine.size())));
    std::unique_lock lock(mutex_);
    wait(lock, 2 * timeout_s_, [](const Peer& peer) { return peer.may_give; });
    peers_[0].may_give = false;
  }
  tell(0, Kind::part, mine);
  return {};
}

std::vector<Bytes> ProcessGroup::all_gather(std::span<const std::byte> mine, std::size_t most) {
  if (world_.rank == 0) {
    std::vector<Bytes> all = collect(mine, most);
    const Bytes packed = pack(all);
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) tell(peer, Kind::result, packed);
    return all;
  }
  const auto count = static_cast<std::size_t>(world_.size);
  {
    std::lock_guard lock(mutex_);
    awaited_ = count * (most + sizeof(std::uint64_t));
  }
  gather(mine, most);
  Bytes packed;
  {
    std::unique_lock lock(mutex_);
    wait(lock, 2 * timeout_s_, [](const Peer& peer) { return !peer.parts.empty(); });
    packed = std::move(peers_[0].parts.front());
    peers_[0].parts.pop_front();
  }
  return unpack(packed, count, most);
}

void ProcessGroup::copy_whole(const Bytes& part, std::size_t rank, void* to, std::size_t size) {
  if (part.size() != size)
    throw runtime_failure(fmt::format("rank {} gave {} bytes where {} were expected", rank, part.size(), size));
  std::memcpy(to, part.data(), size);
}

bool ProcessGroup::any(bool mine) {
  const std::vector<std::uint8_t> all = all_gather_value(static_cast<std::uint8_t>(mine));
  return std::any_of(all.begin(), all.end(), [](std::uint8_t one) { return one != 0; });
}

}  // namespace stretto::launch
