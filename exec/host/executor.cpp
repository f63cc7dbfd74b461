#include "exec/host/executor.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <tuple>

#include "base/error.hpp"
#include "exec/comm/link.hpp"
#include "exec/comm/local.hpp"
#include "exec/comm/rendezvous.hpp"
#include "exec/host/cores.hpp"
#include "model/ring.hpp"

namespace stretto::host {
namespace {

using local::Clock;
using local::Link;
using local::Rendezvous;

struct Aborted {};  // another lane has failed and has already said why

// What a lane has done, counted over all steps: operation p of step s is finished when finished > s · length + p.
struct LaneProgress {
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
};

// What a sleeping lane waits for. It is woken when that has come and not before: a wake-up that finds nothing to do
// takes the core from an operation for some 20 µs.
struct LaneWait {
  std::condition_variable woken;
  std::uint64_t LaneProgress::*counter = nullptr;  // nullptr: the lane does not wait
  LaneId on = 0;
  std::uint64_t needed = 0;
};

struct Rank {
  BoundProgram program;
  std::unique_ptr<RankMemory> memory;
  BoundOperands operands;
  std::mutex mutex;                    // guards progress and waits
  std::vector<LaneProgress> progress;  // [lane]
  std::vector<LaneWait> waits;         // [lane]
  CorePool* cores = nullptr;
  std::vector<Link*> link_of;  // [OpId] of sends and receives
};

// One instance of a communicator: its members and where they meet.
struct Group {
  std::vector<std::int64_t> members;
  std::vector<local::Buffers> buffers;  // [member]: of the collective that they are in; each sets its own and meets
  Rendezvous rendezvous;
  explicit Group(std::vector<std::int64_t> ranks)
      : members(std::move(ranks)), buffers(members.size()), rendezvous(static_cast<int>(members.size())) {}
};

}  // namespace

struct HostExecutor::State {
  const Schedule& schedule;
  HostOptions options;
  std::vector<BoundProgram> programs;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<CorePool>> devices;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::vector<Group*>> group_of;  // [communicator][rank]
  std::map<std::tuple<std::uint32_t, std::int64_t, std::int64_t>, std::unique_ptr<Link>>
      links;  // communicator, from, to
  Clock::time_point origin = Clock::now();

  // Commands to the lane threads: `steps_wanted` grows, every lane works until it has done as many.
  std::mutex command_mutex;
  std::condition_variable commanded, all_idle;
  std::uint64_t steps_wanted = 0;
  std::size_t busy = 0;
  bool quit = false;
  std::exception_ptr failure;
  std::atomic<bool> aborted{false};
  // What each lane records; written by its thread only, read when all are idle.
  struct Recorded {
    std::vector<TimelineRow> rows;  // of the latest step
    Picoseconds previous_end = 0;   // end of the last operation of the step before it
  };
  std::vector<std::vector<Recorded>> recorded;  // [rank][lane]
  std::vector<std::jthread> threads;            // last member: joined before anything they use goes away

  State(const Schedule& s, const MemoryPlan& plan, HostOptions o);
  ~State();

  Picoseconds at(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - origin).count() * 1000;
  }
  std::chrono::nanoseconds timeout() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(options.timeout_s * 1e9));
  }

  void connect(Rank& rank);
  void lane_main(Rank& rank, LaneId lane);
  void run_step(Rank& rank, LaneId lane, std::uint64_t step, std::vector<TimelineRow>& rows);
  TimelineRow run_operation(Rank& rank, LaneId lane, std::uint64_t step, std::uint32_t op, Picoseconds previous_end);
  void exchange(Rank& rank, LaneId lane, std::uint64_t step, std::span<const std::uint32_t> group,
                std::vector<TimelineRow>& rows);
  [[noreturn]] void give_up(const Rank& rank, std::uint32_t op, Rendezvous::Outcome outcome, const std::string& whom);
  Clock::time_point deadline_of(Clock::time_point begin, std::int64_t steps, std::int64_t bytes) const;
  bool await(Rank& rank, const BoundOp& op, std::uint64_t step);  // whether it had to wait
  void advance(Rank& rank, LaneId lane, std::uint64_t LaneProgress::*counter);
  void compute(Rank& rank, std::uint32_t op, TimelineRow& row);
  void communicate(Rank& rank, std::uint32_t op, const Collective& collective, TimelineRow& row);
  Clock::time_point meet(Rank& rank, std::uint32_t op, Group& group);
  void fail(std::exception_ptr why);
};

HostExecutor::State::State(const Schedule& s, const MemoryPlan& plan, HostOptions o)
    : schedule(s), options(std::move(o)) {
  use_one_blas_thread();
  if (options.cores_per_device <= 0)
    options.cores_per_device = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::int64_t count = schedule.mesh.ranks(), per_device = schedule.placement.ranks_per_device;
  for (std::int64_t d = 0; d < (count + per_device - 1) / per_device; ++d)
    devices.push_back(
        std::make_unique<CorePool>(options.cores_per_device, static_cast<int>(d) * options.cores_per_device));
  recorded.resize(static_cast<std::size_t>(count));
  for (std::int64_t r = 0; r < count; ++r) {
    auto rank = std::make_unique<Rank>();
    rank->program = bind(schedule, r);
    rank->memory = std::make_unique<RankMemory>(schedule, plan.roles[schedule.role_of(rank->program.coordinates)]);
    rank->operands = bind_operands(schedule, rank->program, *rank->memory);
    rank->progress.resize(schedule.lanes.size());
    rank->waits = std::vector<LaneWait>(schedule.lanes.size());
    rank->cores = devices[static_cast<std::size_t>(r / per_device)].get();
    programs.push_back(rank->program);
    ranks.push_back(std::move(rank));
    recorded[static_cast<std::size_t>(r)].resize(schedule.lanes.size());
  }
  for (const Communicator& communicator : schedule.communicators) {
    std::vector<Group*> of(static_cast<std::size_t>(count), nullptr);
    for (std::int64_t r = 0; r < count; ++r) {
      if (of[static_cast<std::size_t>(r)] != nullptr) continue;
      std::vector<std::int64_t> members = members_of(schedule, communicator, r);
      if (members.empty()) continue;
      groups.push_back(std::make_unique<Group>(std::move(members)));
      for (const std::int64_t member : groups.back()->members)
        of[static_cast<std::size_t>(member)] = groups.back().get();
    }
    group_of.push_back(std::move(of));
  }
  for (auto& rank : ranks) connect(*rank);
  for (auto& rank : ranks)
    for (LaneId lane = 0; lane < schedule.lanes.size(); ++lane)
      threads.emplace_back([this, &rank = *rank, lane] { lane_main(rank, lane); });
}

void HostExecutor::State::connect(Rank& rank) {
  rank.link_of.assign(schedule.operations.size(), nullptr);
  for (const BoundOp& op : rank.program.ops) {
    const auto* message = std::get_if<PointToPoint>(&schedule.operations[op.op].work);
    if (!message || rank.link_of[op.op]) continue;
    const std::int64_t self = rank.program.rank, peer = peer_of(schedule, *message, self).rank;
    auto& link = links[{message->communicator, message->is_send ? self : peer, message->is_send ? peer : self}];
    if (!link) link = std::make_unique<Link>();
    rank.link_of[op.op] = link.get();
  }
}

HostExecutor::State::~State() {
  {
    std::lock_guard lock(command_mutex);
    quit = true;
    commanded.notify_all();
  }
}

void HostExecutor::State::fail(std::exception_ptr why) {
  {
    std::lock_guard lock(command_mutex);
    if (!failure) failure = why;
    aborted = true;
  }
  for (auto& rank : ranks) {
    std::lock_guard lock(rank->mutex);
    for (LaneWait& wait : rank->waits) wait.woken.notify_all();
  }
  for (auto& group : groups) group->rendezvous.abort();
  for (auto& [ends, link] : links) link->abort();
  for (auto& device : devices) device->shut_down();
}

void HostExecutor::State::lane_main(Rank& rank, LaneId lane) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // links are paced with sleeps; the default slack of 50 µs would be added to each
  const std::vector<std::uint32_t>& ops = rank.program.lanes[lane];
  Recorded& mine = recorded[static_cast<std::size_t>(rank.program.rank)][lane];
  mine.rows.reserve(ops.size());
  std::uint64_t step = 0;
  while (true) {
    std::uint64_t target = 0;
    {
      std::unique_lock lock(command_mutex);
      commanded.wait(lock, [&] { return quit || step < steps_wanted; });
      if (quit) return;
      target = steps_wanted;
    }
    try {
      for (; step < target; ++step) {
        if (!mine.rows.empty()) mine.previous_end = mine.rows.back().end;
        mine.rows.clear();
        run_step(rank, lane, step, mine.rows);
      }
    } catch (const Aborted&) {
      step = target;
    } catch (const Error& error) {
      fail(std::make_exception_ptr(runtime_failure("rank " + std::to_string(rank.program.rank) + ": " + error.what())));
      step = target;
    } catch (const std::exception& error) {
      fail(std::make_exception_ptr(runtime_failure("rank " + std::to_string(rank.program.rank) + ", lane " +
                                                   schedule.lanes[lane].name + ": " + error.what())));
      step = target;
    }
    std::lock_guard lock(command_mutex);
    if (--busy == 0) all_idle.notify_all();
  }
}

// Counts an operation as started or finished and wakes the lanes of this rank that wait for just that.
void HostExecutor::State::advance(Rank& rank, LaneId lane, std::uint64_t LaneProgress::*counter) {
  if (schedule.lanes.size() == 1) return;  // nobody waits on the only lane
  std::lock_guard lock(rank.mutex);
  const std::uint64_t reached = ++(rank.progress[lane].*counter);
  for (LaneWait& wait : rank.waits)
    if (wait.counter == counter && wait.on == lane && reached >= wait.needed) wait.woken.notify_one();
}

void HostExecutor::State::run_step(Rank& rank, LaneId lane, std::uint64_t step, std::vector<TimelineRow>& rows) {
  const std::vector<std::uint32_t>& ops = rank.program.lanes[lane];
  for (std::size_t i = 0; i < ops.size();) {
    std::size_t end = i + 1;
    while (end < ops.size() && rank.program.ops[ops[end]].joined) ++end;
    if (rank.link_of[rank.program.ops[ops[i]].op])
      exchange(rank, lane, step, std::span(ops).subspan(i, end - i), rows);
    else
      rows.push_back(run_operation(rank, lane, step, ops[i], rows.empty() ? 0 : rows.back().end));
    i = end;
  }
}

TimelineRow HostExecutor::State::run_operation(Rank& rank, LaneId lane, std::uint64_t step, std::uint32_t op,
                                               Picoseconds previous_end) {
  TimelineRow row;
  row.rank = static_cast<std::int32_t>(rank.program.rank);
  row.op = op;
  const BoundOp& bound = rank.program.ops[op];
  const Operation& operation = schedule.operations[bound.op];
  if (options.before_operation) options.before_operation(rank.program.rank, op);
  // An operation that waits for nothing is ready when the one before it ends, even if the operating system lets this
  // thread see that later.
  const bool waited = await(rank, bound, step);
  row.ready = waited || previous_end == 0 ? at(Clock::now()) : previous_end;
  if (const auto* collective = std::get_if<Collective>(&operation.work))
    communicate(rank, op, *collective, row);
  else
    compute(rank, op, row);
  advance(rank, lane, &LaneProgress::finished);
  return row;
}

bool HostExecutor::State::await(Rank& rank, const BoundOp& op, std::uint64_t step) {
  if (aborted) throw Aborted{};
  if (op.wait_begin == op.wait_end) return false;
  bool waited = false;
  std::unique_lock lock(rank.mutex);
  for (std::uint32_t w = op.wait_begin; w < op.wait_end; ++w) {
    const BoundWait& wait = rank.program.waits[w];
    if (wait.steps_ago > step) continue;  // before the first step everything is done
    const std::uint64_t needed = (step - wait.steps_ago) * rank.program.lanes[wait.lane].size() + wait.position + 1;
    const auto counter = wait.kind == EdgeKind::finish_start ? &LaneProgress::finished : &LaneProgress::started;
    const auto met = [&] { return rank.progress[wait.lane].*counter >= needed || aborted; };
    if (met()) continue;
    waited = true;
    rank.cores->roam();
    LaneWait& mine = rank.waits[op.lane];
    mine.counter = counter;
    mine.on = wait.lane;
    mine.needed = needed;
    // A communication that does not end gives up by itself, and knows which ranks did not come: it speaks first.
    const bool communicates = schedule.lanes[wait.lane].kind == LaneKind::communication;
    const bool came = mine.woken.wait_for(lock, communicates ? 2 * timeout() : timeout(), met);
    mine.counter = nullptr;
    if (!came) {
      throw runtime_failure(label(schedule, op) + " waited " +
                            std::to_string((communicates ? 2 : 1) * options.timeout_s) + " s for " +
                            label(schedule, rank.program.ops[wait.op]) + " on lane " + schedule.lanes[wait.lane].name);
    }
  }
  if (aborted) throw Aborted{};
  return waited;
}

void HostExecutor::State::compute(Rank& rank, std::uint32_t op, TimelineRow& row) {
  const std::optional<int> core = rank.cores->acquire();
  if (!core) throw Aborted{};
  struct Release {
    CorePool& cores;
    int core;
    ~Release() { cores.release(core); }
  } release{*rank.cores, *core};
  advance(rank, rank.program.ops[op].lane, &LaneProgress::started);
  row.start = row.transfer = at(Clock::now());
  run_work(schedule.operations[rank.program.ops[op].op].work, rank.program.coordinates, rank.operands.of(op));
  row.end = at(Clock::now());
}

Clock::time_point HostExecutor::State::meet(Rank& rank, std::uint32_t op, Group& group) {
  const Rendezvous::Meeting meeting = group.rendezvous.meet(timeout());
  if (meeting.outcome != Rendezvous::Outcome::met)
    give_up(
        rank, op, meeting.outcome,
        std::to_string(meeting.missing) + " of " + std::to_string(group.members.size()) + " ranks that did not come");
  return meeting.complete;
}

void HostExecutor::State::give_up(const Rank& rank, std::uint32_t op, Rendezvous::Outcome outcome,
                                  const std::string& whom) {
  if (outcome == Rendezvous::Outcome::aborted) throw Aborted{};
  throw runtime_failure(label(schedule, rank.program.ops[op]) + " waited " + std::to_string(options.timeout_s) +
                        " s for " + whom);
}

// When the scenario's link would be through.
Clock::time_point HostExecutor::State::deadline_of(Clock::time_point begin, std::int64_t steps,
                                                   std::int64_t bytes) const {
  if (options.link_GBps <= 0) return begin;
  const double ns = double(steps) * options.link_latency_us * 1e3 + double(bytes) / options.link_GBps;
  return begin + std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

// Sends and receives that are issued as one group: all are posted, then the receives are served, then each is waited
// for in turn.
void HostExecutor::State::exchange(Rank& rank, LaneId lane, std::uint64_t step, std::span<const std::uint32_t> group,
                                   std::vector<TimelineRow>& rows) {
  const Picoseconds previous_end = rows.empty() ? 0 : rows.back().end;
  const std::size_t first = rows.size();
  bool waited = false;
  for (const std::uint32_t op : group) {
    if (options.before_operation) options.before_operation(rank.program.rank, op);
    waited = await(rank, rank.program.ops[op], step) || waited;
  }
  const Picoseconds now = at(Clock::now());
  std::vector<std::uint64_t> numbers;
  for (const std::uint32_t op : group) {
    TimelineRow row;
    row.rank = static_cast<std::int32_t>(rank.program.rank);
    row.op = op;
    row.ready = row.start = waited || previous_end == 0 ? now : previous_end;
    rows.push_back(row);
    const OpId id = rank.program.ops[op].op;
    const bool is_send = std::get<PointToPoint>(schedule.operations[id].work).is_send;
    const Operand& buffer = rank.operands.of(op).front();
    numbers.push_back(is_send ? rank.link_of[id]->post_send(buffer.data) : rank.link_of[id]->post_receive());
    advance(rank, lane, &LaneProgress::started);
  }
  for (const bool sends : {false, true})
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::uint32_t op = group[i];
      const OpId id = rank.program.ops[op].op;
      const auto& work = std::get<PointToPoint>(schedule.operations[id].work);
      if (work.is_send != sends) continue;
      const Link::Meeting meeting = rank.link_of[id]->meet(numbers[i], timeout());
      const std::string peer = "rank " + std::to_string(peer_of(schedule, work, rank.program.rank).rank);
      if (meeting.outcome != Rendezvous::Outcome::met) give_up(rank, op, meeting.outcome, peer + " that did not come");
      const Operand& buffer = rank.operands.of(op).front();
      rows[first + i].transfer = at(meeting.complete);
      rows[first + i].end = at(deadline_of(meeting.complete, 1, work.elements * bytes_of(buffer.dtype)));
      if (sends) {
        const Rendezvous::Outcome outcome = rank.link_of[id]->await_delivery(numbers[i], timeout());
        if (outcome != Rendezvous::Outcome::met) give_up(rank, op, outcome, peer + " to take the message");
        continue;
      }
      const std::optional<int> core = rank.cores->acquire();
      if (!core) throw Aborted{};
      std::memcpy(buffer.data, meeting.in, static_cast<std::size_t>(work.elements * bytes_of(buffer.dtype)));
      rank.cores->release(*core);
      rank.cores->roam();
      rank.link_of[id]->delivered(numbers[i]);
    }
  for (std::size_t i = 0; i < group.size(); ++i) {
    TimelineRow& row = rows[first + i];
    const Clock::time_point deadline = origin + std::chrono::nanoseconds(row.end / 1000);
    if (deadline > Clock::now()) std::this_thread::sleep_until(deadline);
    row.end = at(Clock::now());
    advance(rank, lane, &LaneProgress::finished);
  }
}

void HostExecutor::State::communicate(Rank& rank, std::uint32_t op, const Collective& collective, TimelineRow& row) {
  Group& group = *group_of[collective.communicator][static_cast<std::size_t>(rank.program.rank)];
  const int members = static_cast<int>(group.members.size());
  const auto operands = rank.operands.of(op);
  const int self = static_cast<int>(std::find(group.members.begin(), group.members.end(), rank.program.rank) -
                                    group.members.begin());
  row.start = row.ready;
  advance(rank, rank.program.ops[op].lane, &LaneProgress::started);
  // Everybody has left the meeting before when the last of its phases was over.
  group.buffers[static_cast<std::size_t>(self)] = {operands.front().data, operands.back().data};
  Clock::time_point end = meet(rank, op, group);
  row.transfer = at(end);
  const Dtype dtype = operands.front().dtype;
  const RingCost ring = ring_cost(collective.kind, dtype, collective.elements, members);
  const Clock::time_point deadline = deadline_of(end, ring.steps, ring.edge_bytes);
  for (int phase = 0; phase < local::phases(collective.kind); ++phase) {
    const std::optional<int> core = rank.cores->acquire();
    if (!core) throw Aborted{};
    local::run_share(collective.kind, dtype, collective.elements, self, group.buffers, phase);
    rank.cores->release(*core);
    rank.cores->roam();
    end = meet(rank, op, group);
  }
  if (deadline > end) {
    std::this_thread::sleep_until(deadline);
    end = Clock::now();
  }
  row.end = at(std::max(end, deadline));
}

HostExecutor::HostExecutor(const Schedule& schedule, const MemoryPlan& plan, HostOptions options)
    : state_(std::make_unique<State>(schedule, plan, std::move(options))) {}
HostExecutor::~HostExecutor() = default;

Timeline HostExecutor::run(int steps) {
  State& s = *state_;
  if (s.aborted) throw runtime_failure("this executor has failed before and cannot go on");
  Timeline timeline;
  timeline.step_begin = s.at(Clock::now());
  {
    std::unique_lock lock(s.command_mutex);
    s.busy = s.threads.size();
    s.steps_wanted += static_cast<std::uint64_t>(steps);
    s.commanded.notify_all();
    s.all_idle.wait(lock, [&] { return s.busy == 0; });
    if (s.failure) std::rethrow_exception(s.failure);
  }
  if (steps > 1) timeline.step_begin = 0;
  for (auto& lanes : s.recorded)
    for (auto& lane : lanes) {
      if (steps > 1) timeline.step_begin = std::max(timeline.step_begin, lane.previous_end);
      timeline.rows.insert(timeline.rows.end(), lane.rows.begin(), lane.rows.end());
    }
  std::sort(timeline.rows.begin(), timeline.rows.end(), [](const TimelineRow& a, const TimelineRow& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.op < b.op;
  });
  for (const TimelineRow& row : timeline.rows) timeline.step_end = std::max(timeline.step_end, row.end);
  return timeline;
}

std::int64_t HostExecutor::ranks() const { return static_cast<std::int64_t>(state_->ranks.size()); }
const std::vector<BoundProgram>& HostExecutor::programs() const { return state_->programs; }
RankMemory& HostExecutor::memory(std::int64_t rank) { return *state_->ranks[static_cast<std::size_t>(rank)]->memory; }
const Schedule& HostExecutor::schedule() const { return state_->schedule; }

}  // namespace stretto::host
