#include "exec/host/executor.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <system_error>

#include "base/error.hpp"
#include "exec/host/executor_state.hpp"
#include "exec/host/time_slice.hpp"
#include "model/schedule/residency.hpp"

namespace stretto::host {

namespace {

class Computing {
 public:
  Computing(Rank& rank, LaneId lane, std::uint32_t op) : mine_(rank.computing[lane]) {
    mine_.op = op;
    mine_.since = Clock::now().time_since_epoch().count();
  }
  ~Computing() { mine_.since = 0; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  Computation& mine_;
};

}  // namespace

HostExecutor::State::State(const VerifiedSchedule& verified, HostOptions o)
    : schedule(verified.schedule), options(std::move(o)) {
  if (options.cores_per_device <= 0)
    options.cores_per_device = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  check_residency(schedule, options.cores_per_device);
  const std::int64_t count = schedule.mesh.ranks(), per_device = schedule.placement.ranks_per_device;
  const launch::ProcessGroup* processes = options.processes;
  // A process has one rank, on the device with its own number among those of this machine.
  const std::int64_t here = processes ? 1 : count, first_rank = processes ? processes->rank() : 0,
                     first_device = processes ? processes->world().local_rank : 0;
  for (std::int64_t d = 0; d < (here + per_device - 1) / per_device; ++d)
    devices.push_back(std::make_unique<CorePool>(options.cores_per_device,
                                                 static_cast<int>(first_device + d) * options.cores_per_device));
  const std::size_t cores = devices.size() * static_cast<std::size_t>(options.cores_per_device);
  prepare_blas(std::min(cores, static_cast<std::size_t>(here) * schedule.lanes.size()));
  recorded.resize(static_cast<std::size_t>(here));
  BoundStep step;  // programs of all ranks
  if (processes)
    programs.push_back(program_of(schedule, verified, first_rank));
  else
    programs = std::move((step = unfolded(schedule, verified)).programs);
  for (std::int64_t r = first_rank; r < first_rank + here; ++r) {
    auto rank = std::make_unique<Rank>(programs[static_cast<std::size_t>(r - first_rank)]);
    rank->place = ranks.size();
    rank->memory = std::make_unique<RankMemory>(schedule, verified.plan.roles[rank->program.role]);
    rank->operands = bind_operands(schedule, rank->program, *rank->memory);
    rank->progress.resize(schedule.lanes.size());
    rank->waits = std::vector<LaneWait>(schedule.lanes.size());
    rank->received.resize(schedule.lanes.size());
    rank->computing = std::vector<Computation>(schedule.lanes.size());
    rank->cores = devices[static_cast<std::size_t>((r - first_rank) / per_device)].get();
    ranks.push_back(std::move(rank));
    recorded[static_cast<std::size_t>(r - first_rank)].resize(schedule.lanes.size());
  }
  try {
    if (processes) {
      reach_others();
    } else {
      meet_partners(step.issued.partners);
    }
    for (auto& rank : ranks)
      for (LaneId lane = 0; lane < schedule.lanes.size(); ++lane)
        threads.emplace_back([this, &rank = *rank, lane] { lane_main(rank, lane); });
  } catch (const std::system_error& error) {
    stop();
    throw runtime_failure(std::string("starting a thread for every lane: ") + error.what());
  } catch (...) {
    stop();
    throw;
  }
}

HostExecutor::State::~State() { stop(); }

void HostExecutor::State::stop() {
  if (options.processes) options.processes->on_failure({});
  {
    std::lock_guard lock(command_mutex);
    quit = true;
    commanded.notify_all();
  }
  threads.clear();
  if (abort_event >= 0) ::close(std::exchange(abort_event, -1));
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
  for (auto& group : groups) group->barrier.abort();
  for (auto& link : links) link->abort();
  for (auto& device : devices) device->shut_down();
  if (abort_event >= 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(abort_event, &one, sizeof one);
  }
}

void HostExecutor::State::lane_main(Rank& rank, LaneId lane) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // links are paced with sleeps; the default slack of 50 µs would be added to each
  if (schedule.lanes[lane].kind == LaneKind::communication) ask_for_short_time_slices();
  const std::vector<std::uint32_t>& ops = rank.program.lanes[lane];
  Recorded& mine = recorded[rank.place][lane];
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

// Counts an operation as started or finished and wakes the lanes of this rank that wait for exactly that count.
void HostExecutor::State::advance(Rank& rank, LaneId lane, std::uint64_t LaneProgress::*counter) {
  if (schedule.lanes.size() == 1) return;  // no lane waits for the only lane
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
    if (std::holds_alternative<PointToPoint>(rank.program.work_of(ops[i])))
      exchange(rank, lane, step, std::span(ops).subspan(i, end - i), rows);
    else
      rows.push_back(run_operation(rank, lane, step, ops[i], rows.empty() ? 0 : rows.back().end));
    i = end;
  }
}

TimelineRow HostExecutor::State::run_operation(Rank& rank, LaneId lane, std::uint64_t step, std::uint32_t op,
                                               Picoseconds previous_end) {
  TimelineRow row;
  row.rank = static_cast<std::int32_t>(rank.place);
  row.op = op;
  const BoundOp& bound = rank.program.ops[op];
  const Operation& operation = schedule.operations[bound.op];
  if (options.before_operation) {
    const Computing computing(rank, lane, op);
    options.before_operation(rank.program.rank, op);
  }
  // An operation without waits is ready when the previous one ends, even if the operating system resumes this thread
  // later.
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
    if (wait.steps_ago > step) continue;  // before the first step everything counts as done
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
    // A communication that does not end times out by itself, and knows which ranks are missing: its message must come
    // first.
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
  const std::optional<int> core = rank.cores->acquire(schedule.lanes[rank.program.ops[op].lane].priority);
  if (!core) throw Aborted{};
  struct Release {
    CorePool& cores;
    int core;
    ~Release() { cores.release(core); }
  } release{*rank.cores, *core};
  advance(rank, rank.program.ops[op].lane, &LaneProgress::started);
  row.start = row.transfer = at(Clock::now());
  {
    const Computing computing(rank, rank.program.ops[op].lane, op);
    run_work(rank.program.works[rank.program.ops[op].op], rank.operands.of(op));
  }
  row.end = at(Clock::now());
  if (aborted) throw Aborted{};  // the data that this lane would go on with may be gone
}

HostExecutor::HostExecutor(const VerifiedSchedule& verified, HostOptions options)
    : state_(std::make_unique<State>(verified, std::move(options))) {}
HostExecutor::~HostExecutor() {
  if (!state_->is_hung) return;
  if (state_->options.processes) state_->options.processes->on_failure({});
  state_.release();  // a thread that cannot be ended uses the state until the process ends
}

std::string HostExecutor::State::longest_computation(std::chrono::nanoseconds at_least) {
  for (auto& rank : ranks)
    for (const Computation& computing : rank->computing) {
      const Clock::time_point since{Clock::duration(computing.since)};
      if (since == Clock::time_point{} || Clock::now() - since < at_least) continue;
      return fmt::format("rank {}: {} has computed for {:.0f} s and does not end", rank->program.rank,
                         label(schedule, rank->program.ops[computing.op]),
                         std::chrono::duration<double>(Clock::now() - since).count());
    }
  return "";
}

// Waits until all lanes are idle. A computation cannot be ended from outside. One that hangs fails the step, after the
// operations that wait for it had time to report; when its lane has not returned soon after a failure, this function
// reports the failure.
void HostExecutor::State::await_idle(std::unique_lock<std::mutex>& lock) {
  constexpr auto look = std::chrono::milliseconds(500), grace = std::chrono::milliseconds(5000),
                 stopping = std::chrono::milliseconds(10000);
  std::optional<Clock::time_point> failed;
  while (!all_idle.wait_for(lock, look, [&] { return busy == 0; })) {
    if (failure && !failed) failed = Clock::now();
    const auto most = failed ? std::chrono::nanoseconds(grace) : timeout() * 3 / 2;
    if (failed && Clock::now() - *failed < grace) continue;
    const bool is_stopping = !failed && options.stop && options.stop();
    const std::string hung =
        longest_computation(is_stopping ? std::min<std::chrono::nanoseconds>(most, stopping) : most);
    if (hung.empty()) continue;
    if (failed) {
      is_hung = true;
      return;
    }
    lock.unlock();
    fail(std::make_exception_ptr(runtime_failure(hung)));
    lock.lock();
  }
}

void HostExecutor::State::rethrow_failure() {
  if (!failure) return;
  has_thrown = true;
  std::rethrow_exception(failure);
}

Timeline HostExecutor::run(int steps) {
  State& s = *state_;
  if (s.options.processes)
    if (const auto elsewhere = s.options.processes->failure()) throw runtime_failure(*elsewhere);
  Timeline timeline;
  timeline.step_begin = s.at(Clock::now());
  {
    std::unique_lock lock(s.command_mutex);
    // Another process may have failed since the check above: the first step that meets the failure names the reason.
    if (s.has_thrown) throw runtime_failure("this executor has failed before and cannot go on");
    s.rethrow_failure();
    s.busy = s.threads.size();
    s.steps_wanted += static_cast<std::uint64_t>(steps);
    s.commanded.notify_all();
    s.await_idle(lock);
    s.rethrow_failure();
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

bool HostExecutor::is_here(std::int64_t rank) const {
  const launch::ProcessGroup* processes = state_->options.processes;
  return processes ? rank == processes->rank() : rank >= 0 && rank < static_cast<std::int64_t>(state_->ranks.size());
}
const std::vector<BoundProgram>& HostExecutor::programs() const { return state_->programs; }
RankMemory& HostExecutor::memory(std::int64_t rank) {
  assert(is_here(rank));
  return *state_->ranks[state_->options.processes ? 0 : static_cast<std::size_t>(rank)]->memory;
}
const Schedule& HostExecutor::schedule() const { return state_->schedule; }

}  // namespace stretto::host
