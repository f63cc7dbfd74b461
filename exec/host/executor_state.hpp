#pragma once
// Internal to the host executor: executor.cpp runs lanes, communicate.cpp their communication within this process,
// remote.cpp their communication with other processes. Each lane of each rank is a thread.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/comm/barrier.hpp"
#include "exec/comm/link.hpp"
#include "exec/comm/local.hpp"
#include "exec/comm/wires.hpp"
#include "exec/host/cores.hpp"
#include "exec/host/executor.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::host {

using local::Barrier;
using local::Clock;
using local::Link;
using local::WaitOutcome;

struct Aborted {};  // thrown when another lane has failed and has reported the reason

// Progress of a lane, counted over all steps: operation p of step s is finished when finished > s · length + p.
struct LaneProgress {
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
};

// The counter for which a sleeping lane waits. The lane is woken only when the counter is reached, because a useless
// wake-up takes a core from an operation for some 20 µs.
struct LaneWait {
  std::condition_variable woken;
  std::uint64_t LaneProgress::*counter = nullptr;  // nullptr: the lane does not wait
  LaneId on = 0;
  std::uint64_t needed = 0;
};

// The current computation of a lane, for the check for hung lanes.
struct Computation {
  std::atomic<Clock::rep> since{0};  // 0: none
  std::atomic<std::uint32_t> op{0};  // index into the program's operations
};

// One process group of a communicator, with the rendezvous of its members.
struct CommGroup {
  std::vector<std::uint32_t> members;  // indices into State::ranks
  // [member]: buffers of the current collective; each member sets its own, then meets
  std::vector<local::Buffers> buffers;
  Barrier barrier;
  explicit CommGroup(std::vector<std::uint32_t> ranks)
      : members(std::move(ranks)), buffers(members.size()), barrier(static_cast<int>(members.size())) {}
};

// One rank. Its lanes are threads. `mutex` guards their shared progress; all else is constant after construction,
// except memory, which operations write in the order that the verifier has proved.
struct Rank {
  explicit Rank(const BoundProgram& of) : program(of) {}
  const BoundProgram& program;  // one of State::programs
  std::size_t place = 0;        // index into State::ranks
  std::unique_ptr<RankMemory> memory;
  BoundOperands operands;
  std::mutex mutex;                    // guards progress and waits
  std::vector<LaneProgress> progress;  // [lane]
  std::vector<LaneWait> waits;         // [lane]
  std::vector<Computation> computing;  // [lane]
  CorePool* cores = nullptr;
  std::vector<CommGroup*> group_of;              // [communicator]; nullptr: not a member
  std::vector<Link*> link_of;                    // [OpId], for sends and receives
  std::vector<std::vector<std::byte>> received;  // [lane]: bytes that a reduction received from other processes
};

// The cores that a communication's channels hold until it ends. RAII.
class Residence {
 public:
  Residence(CorePool& cores, int count, int priority);  // waits until it has `count` cores; throws Aborted
  ~Residence() { release(); }
  void release();  // releases the cores before the destructor does
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;
  // Calls move(), which moves bytes, on a held core, or on one borrowed from the pool if it holds none.
  template <class Move>
  void work(const Move& move) const {
    const std::optional<int> core = held_.empty() ? cores_.acquire(priority_) : held_.front();
    if (!core) throw Aborted{};
    if (!held_.empty()) cores_.pin_to(*core);
    move();
    if (held_.empty()) cores_.release(*core);
    cores_.roam();
  }

 private:
  CorePool& cores_;
  int priority_;
  std::vector<int> held_;
};

// All data of an executor. The schedule and options.processes are borrowed and must outlive this object; everything
// else is owned, and the pointers in Rank point to it.
struct HostExecutor::State {
  const Schedule& schedule;
  HostOptions options;
  // The lane threads change no vector from here to `links`, only the objects that the pointers point to.
  std::vector<BoundProgram> programs;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<CorePool>> devices;
  std::vector<std::unique_ptr<CommGroup>> groups;
  std::vector<std::unique_ptr<Link>> links;  // [Partners::routes]
  std::optional<wire::Wires> wires;          // set when the other ranks are other processes
  int abort_event = -1;                      // eventfd; readable when all lanes must end
  Clock::time_point origin = Clock::now();

  // Commands to the lane threads: run() raises `steps_wanted`, and every lane works until it has done that many steps.
  std::mutex command_mutex;
  std::condition_variable commanded, all_idle;
  // `command_mutex` guards the members from here to `is_hung`.
  std::uint64_t steps_wanted = 0;
  std::size_t busy = 0;
  bool quit = false;
  std::exception_ptr failure;
  bool has_thrown = false;  // run() has thrown the failure to its caller
  bool is_hung = false;     // a lane does not return from a computation, so nothing that it uses may be freed
  std::atomic<bool> aborted{false};
  // The recording of each lane; written only by its thread, read while all lanes are idle.
  struct Recorded {
    std::vector<TimelineRow> rows;  // rows of the latest step
    Picoseconds previous_end = 0;   // end of the last operation of the step before that
  };
  std::vector<std::vector<Recorded>> recorded;  // [rank][lane]
  // the last member, so that threads are joined before anything they use is destroyed
  std::vector<std::jthread> threads;

  State(const VerifiedSchedule& verified, HostOptions o);
  ~State();
  void stop();  // ends the lane threads and deregisters from the process group

  Picoseconds at(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - origin).count() * 1000;
  }
  std::chrono::nanoseconds timeout() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(options.timeout_s * 1e9));
  }

  // Called at construction: makes the process groups of all communicators and the links of all messages.
  void meet_partners(const Partners& partners);

  // These functions run on a lane's thread. They throw Aborted when another lane has failed, and Error(runtime) naming
  // the operation when a peer did not arrive within the timeout; lane_main passes the latter to fail(), which stops all
  // ranks.
  void lane_main(Rank& rank, LaneId lane);
  // Runs the lane's operations of step `step`, which counts from 0, in order; appends a row for each.
  void run_step(Rank& rank, LaneId lane, std::uint64_t step, std::vector<TimelineRow>& rows);
  // Runs operation `op`, an index into the program's operations that is not a message, after its waits. `previous_end`
  // is the end of the lane's previous operation in this step, 0 for the first. Returns the operation's row.
  TimelineRow run_operation(Rank& rank, LaneId lane, std::uint64_t step, std::uint32_t op, Picoseconds previous_end);
  // Runs the joined sends and receives `group`; appends a row for each.
  void exchange(Rank& rank, LaneId lane, std::uint64_t step, std::span<const std::uint32_t> group,
                std::vector<TimelineRow>& rows);
  // Throws Aborted if `outcome` is `aborted`, otherwise Error(runtime): the operation, the timeout, and `whom` it
  // waited for.
  [[noreturn]] void give_up(const Rank& rank, std::uint32_t op, WaitOutcome outcome, const std::string& whom);
  // Returns the time at which the scenario's link, or the communicator's channels if they are slower, would have moved
  // `bytes` in `steps` steps that each pay the latency; `begin` if the link is not limited.
  Clock::time_point deadline_of(Clock::time_point begin, const Communicator& communicator, std::int64_t steps,
                                std::int64_t bytes) const;
  bool await(Rank& rank, const BoundOp& op, std::uint64_t step);  // returns whether it had to wait
  // Counts an operation as started or finished, and wakes the lanes that wait for it.
  void advance(Rank& rank, LaneId lane, std::uint64_t LaneProgress::*counter);
  // Runs a compute operation on one core of the rank's pool. Sets `row`'s start, transfer and end.
  void compute(Rank& rank, std::uint32_t op, TimelineRow& row);
  // Runs a collective, within this process or with others. Sets `row`'s start, transfer and end.
  void communicate(Rank& rank, std::uint32_t op, const Collective& collective, TimelineRow& row);
  // Waits at the group's barrier for all members. Returns the time at which the last one came.
  Clock::time_point meet(Rank& rank, std::uint32_t op, CommGroup& group);
  // Communication with other processes: remote.cpp.
  // Connects to the processes of all partners, and makes a failure of the process group stop the lanes.
  void reach_others();
  // Runs the joined sends and receives `group` and releases `residence`. Sets transfer and end
  // of each of `rows`.
  void exchange_remotely(Rank& rank, LaneId lane, std::span<const std::uint32_t> group, Residence& residence,
                         std::span<TimelineRow> rows);
  // Runs a collective whose members are other processes.
  void communicate_remotely(Rank& rank, std::uint32_t op, const Collective& collective, const Residence& residence);
  // Moves the bytes of all transfers of operation `op`, an index into the program's operations. When a peer has closed
  // its connection, the failure that the process group reports within 2 s takes precedence.
  void move(const Rank& rank, std::uint32_t op, std::vector<wire::Transfer> transfers);
  // Waits until no lane works; `command_lock` holds command_mutex. A computation that does not return is reported to
  // fail(). Sets is_hung and returns when a computation still runs after a failure and a grace period.
  void await_idle(std::unique_lock<std::mutex>& command_lock);
  void rethrow_failure();                                              // with command_mutex held
  std::string longest_computation(std::chrono::nanoseconds at_least);  // "" when no computation takes that long
  void fail(std::exception_ptr why);                                   // from any thread; the first reason is kept
};

}  // namespace stretto::host
