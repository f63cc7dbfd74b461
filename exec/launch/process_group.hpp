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
#include <vector>

#include "base/error.hpp"
#include "exec/launch/socket.hpp"
#include "exec/launch/world.hpp"

namespace stretto::launch {

using Bytes = std::vector<std::byte>;

// The processes of a training run and what they say to each other beside its communication: ids of communicators,
// pieces of checkpoints, whether to stop, and that one of them has failed. Every process is connected to that of rank
// 0, by TCP.
//
// A process that dies, or whose machine vanishes, is noticed by its connection: all others fail within seconds, with
// the rank and, where it could still be said, the reason. One that is stopped, or whose machine hangs, is noticed by
// its silence, once the group watches.
class ProcessGroup {
 public:
  // Returns when all processes have come. Throws Error(runtime) when some have not within timeout_s, which rank 0
  // names; also when somebody comes who does not belong here. Processes take their time, to prepare as well as to write
  // a checkpoint, so timeout_s should be minutes.
  ProcessGroup(const World& world, double timeout_s);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const World& world() const { return world_; }
  std::int64_t rank() const { return world_.rank; }
  std::int64_t size() const { return world_.size; }
  // Of this machine, as the others reach it.
  const std::string& address() const { return address_; }

  // Every process makes these calls in the same order, each from one thread. They throw Error when the group has
  // failed, of kind runtime when somebody has not come after timeout_s. Rank 0 says who; that it is rank 0 itself the
  // others say after twice the time, since it may have come later than they.
  std::vector<Bytes> all_gather(std::span<const std::byte> mine);  // [rank], the same everywhere
  std::vector<Bytes> gather(std::span<const std::byte> mine);      // [rank] at rank 0, nothing elsewhere
  void barrier() { all_gather({}); }
  bool any(bool mine);

  // From now on a process that shows no sign of life for `silent_s` fails the group, with its rank. Each gives several
  // in that time, on a thread of its own and whatever its others do, so long work is none; and is listened to from its
  // first on, so that not all need call this at the same time. To be called once, by all.
  void watch(double silent_s);

  // From any thread: this process cannot go on, so nobody can. The first reason of all is kept, the same everywhere; it
  // is given this rank's number where it does not begin with one. What the others then throw is of the same kind.
  void fail(const std::string& reason, ErrorKind kind = ErrorKind::runtime);
  // "rank 3: …" once there is one.
  std::optional<std::string> failure() const;
  // Whether this process is the one that tells a user who sees what all of them print.
  bool speaks_for_failure() const;
  // `act` is called with the reason, once, on another thread, or at once when there is one already; not after it has
  // been taken back with an empty function.
  void on_failure(std::function<void(const std::string& reason)> act);

 private:
  // The first tells Stretto's own.
  enum class Kind : std::uint32_t { hello = 0x53545231, part, result, failure, wrong_input, bye, alive };
  struct Peer {
    Socket socket;
    std::deque<Bytes> parts;  // that have come from it and nobody has asked for yet
    bool has_left = false;
    bool is_written = false;                 // by some thread: messages are sent whole
    std::optional<Clock::time_point> alive;  // the latest sign, once there was one; the listener's
  };

  void assemble();  // rank 0
  void join();      // all others
  [[noreturn]] void give_up(const std::string& reason);
  void leave();
  void listen();                // on a thread of its own, to all peers
  bool hear(std::size_t peer);  // a message; false when it was the last
  void live();                  // on a thread of its own
  void show_life();
  void look_for_silence();
  void note_failure(const std::string& reason, ErrorKind kind = ErrorKind::runtime);
  void send(std::size_t peer, Kind kind, std::span<const std::byte> bytes);
  void tell(std::size_t peer, Kind kind, std::span<const std::byte> bytes);
  void tell_failure();
  static Kind kind_of(ErrorKind error) { return error == ErrorKind::input ? Kind::wrong_input : Kind::failure; }
  std::vector<Bytes> collect(std::span<const std::byte> mine);
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, double most_s, Ready ready);
  std::int64_t rank_of(std::size_t peer) const { return world_.rank == 0 ? static_cast<std::int64_t>(peer) + 1 : 0; }

  const World world_;
  const double timeout_s_;
  std::string address_;
  std::vector<Peer> peers_;   // at rank 0 all others, elsewhere rank 0
  mutable std::mutex mutex_;  // guards what follows, and the peers but for their sockets
  std::condition_variable changed_;
  std::optional<std::string> failure_;
  ErrorKind failure_kind_ = ErrorKind::runtime;
  std::function<void(const std::string&)> act_;
  bool is_leaving_ = false;
  std::mutex acting_;         // held while act_ runs, and taken before mutex_
  int wake_ = -1;             // eventfd: the listener is to end, or to watch from now on
  double silent_s_ = 0;       // 0: nobody watches
  Clock::time_point looked_;  // the listener's
  std::thread listener_, living_;
};

}  // namespace stretto::launch
