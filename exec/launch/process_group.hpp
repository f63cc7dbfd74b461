#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "exec/launch/message.hpp"
#include "exec/launch/socket.hpp"
#include "exec/launch/world.hpp"

namespace stretto::launch {

// The processes of a training run and their control messages: ids of communicators, the contents of checkpoints,
// whether to stop, and failures. Training data use other connections. Every process has a TCP connection to rank 0.
//
// When a process dies or its machine vanishes, its connection breaks: all others fail within seconds, with its rank
// and, if it could still be sent, the reason. A process that is stopped, or whose machine hangs, is found by missing
// heartbeats, after watch().
//
// A connecting process must prove that it knows the job's token (greeting.hpp); otherwise it only loses its connection.
// No more bytes are accepted from a process of the group than were expected: a process that sends anything else fails
// the whole group, with its rank.
class ProcessGroup {
 public:
  // Returns when all processes have connected. Throws Error(runtime) when some have not within timeout_s, which rank 0
  // names, or when the processes do not fit together. After a few seconds of waiting rank 0 passes `say` a line that
  // names the missing ranks, and rank 1 one that names rank 0. Processes need time to prepare and to write checkpoints,
  // so timeout_s should be minutes.
  using Say = std::function<void(const std::string& line)>;
  ProcessGroup(const World& world, double timeout_s, const Say& say = {});
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const World& world() const { return world_; }
  std::int64_t rank() const { return world_.rank; }
  std::int64_t size() const { return world_.size; }
  // Returns the address at which the other processes reach this machine.
  const std::string& address() const { return address_; }

  // Collective: every process makes these calls in the same order, each from one thread. They throw Error when the
  // group has failed, and Error(runtime) when a process has not arrived after timeout_s. Rank 0 names it. When rank 0
  // itself is missing, the others report that after twice the time, because it may have arrived later than they did.
  // `most`: upper bound of the bytes of each rank, equal on all.
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::size_t most);  // [rank], equal on every process
  std::vector<Bytes> gather(std::span<const std::byte> mine, std::size_t most);  // [rank] at rank 0, empty elsewhere
  template <class T>
  std::vector<T> all_gather_value(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::vector<Bytes> all = all_gather(std::as_bytes(std::span(&mine, 1)), sizeof(T));
    std::vector<T> values(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) copy_whole(all[rank], rank, &values[rank], sizeof(T));
    return values;
  }
  void barrier() { all_gather({}, 0); }
  bool any(bool mine);

  // From now on a process without a heartbeat for `silent_s` seconds fails the group, with its rank. Heartbeats are
  // sent from a separate thread, so long computation does not count as silence. A process is watched from its first
  // heartbeat on, so the calls need not be simultaneous. Every process calls this once.
  void watch(double silent_s);

  // May be called from any thread: this process cannot continue, so the group fails. All processes keep the same first
  // reason, prefixed with this rank's number unless it begins with one, and throw Errors of the same kind.
  void fail(const std::string& reason, ErrorKind kind = ErrorKind::runtime);
  // "rank 3: …" after a failure.
  std::optional<std::string> failure() const;
  // Calls `act` with the reason, once, on another thread; immediately if the group has failed already. An empty
  // function unregisters it: afterwards it is not called.
  void on_failure(std::function<void(const std::string& reason)> act);

 private:
  using Kind = Header::Kind;
  struct Peer {
    Socket socket;
    Inbox inbox;                             // used by the listener
    std::deque<Bytes> parts;                 // parts that have arrived and that no call has asked for yet
    std::uint64_t offered = 0, granted = 0;  // bytes of a part that the peer may not yet send, or may send
    bool may_give = false;                   // rank 0 has permitted it
    bool has_left = false;
    bool is_written = false;                 // some thread is writing: messages are sent whole
    std::optional<Clock::time_point> alive;  // the latest heartbeat, once there was one; used by the listener
  };

  void assemble(const Say& say);  // runs at rank 0
  void join(const Say& say);      // runs at all other ranks
  [[noreturn]] void give_up(const std::string& reason);
  void leave();
  void listen();                // runs on a thread of its own, for all peers
  bool hear(std::size_t peer);  // takes the received bytes; returns false after the last message
  Limits limits(std::size_t peer) const;
  void take(std::size_t peer, ControlMessage message);
  void live();  // runs on a thread of its own
  void show_life();
  void look_for_silence();
  void note_failure(const std::string& reason, ErrorKind kind = ErrorKind::runtime);
  void send(std::size_t peer, Kind kind, std::span<const std::byte> bytes);  // throws Error(runtime)
  void tell(std::size_t peer, Kind kind, std::span<const std::byte> bytes);
  void tell_failure();
  static Kind kind_of(ErrorKind error) { return error == ErrorKind::input ? Kind::wrong_input : Kind::failure; }
  std::vector<Bytes> collect(std::span<const std::byte> mine, std::size_t most);
  static void copy_whole(const Bytes& part, std::size_t rank, void* to, std::size_t size);
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, double most_s, Ready ready);
  std::int64_t rank_of(std::size_t peer) const { return world_.rank == 0 ? static_cast<std::int64_t>(peer) + 1 : 0; }

  const World world_;
  const double timeout_s_;
  std::string address_;
  std::vector<Peer> peers_;   // at rank 0 all other ranks, elsewhere rank 0
  mutable std::mutex mutex_;  // guards the members below, and the peers except their sockets
  std::condition_variable changed_;
  std::optional<std::string> failure_;
  ErrorKind failure_kind_ = ErrorKind::runtime;
  std::optional<std::uint64_t> awaited_;  // the most bytes of the result expected from rank 0
  std::function<void(const std::string&)> act_;
  bool is_leaving_ = false;
  std::mutex acting_;         // held while act_ runs, and taken before mutex_
  int wake_ = -1;             // eventfd: the listener must end, or start to watch
  double silent_s_ = 0;       // 0: no watching
  Clock::time_point looked_;  // used by the listener
  std::thread listener_, living_;
};

}  // namespace stretto::launch
