#include "sim/core.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

std::vector<std::uint32_t> devices_of_lanes(const Schedule& schedule, const std::vector<BoundProgram>& programs) {
  std::map<std::int64_t, std::uint32_t> number;
  std::vector<std::uint32_t> result;
  for (const BoundProgram& program : programs) {
    const std::int64_t device = program.rank / std::max<std::int64_t>(1, schedule.placement.ranks_per_device);
    const std::uint32_t at = number.try_emplace(device, static_cast<std::uint32_t>(number.size())).first->second;
    result.insert(result.end(), schedule.lanes.size(), at);
  }
  return result;
}

std::vector<int> priority_of_lanes(const Schedule& schedule, std::size_t ranks) {
  std::vector<int> result;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (const Lane& lane : schedule.lanes) result.push_back(lane.priority);
  return result;
}

std::vector<int> cores_of_lanes(const std::vector<std::shared_ptr<const FlatProgram>>& flat) {
  std::vector<int> result;
  for (const auto& program : flat) result.insert(result.end(), program->lane_cores.begin(), program->lane_cores.end());
  return result;
}

std::size_t count_rows(const std::vector<BoundProgram>& programs) {
  std::size_t rows = 0;
  for (const BoundProgram& program : programs) rows += program.ops.size();
  return rows;
}

std::size_t count_busy_lanes(const std::vector<BoundProgram>& programs) {
  std::size_t lanes = 0;
  for (const BoundProgram& program : programs)
    for (const auto& lane : program.lanes) lanes += !lane.empty();
  return lanes;
}

}  // namespace

Core::Core(const Schedule& schedule, const Costs& costs, const std::vector<BoundProgram>& programs,
           const std::vector<std::shared_ptr<const FlatProgram>>& flat, const Partners& partners, Network& network,
           int max_steps)
    : schedule_(schedule),
      costs_(costs),
      programs_(programs),
      network_(network),
      lanes_per_rank_(static_cast<std::uint32_t>(schedule.lanes.size())),
      max_steps_(max_steps),
      events_(programs.size() * schedule.lanes.size()),
      lanes_(programs.size() * schedule.lanes.size()),
      devices_(costs, devices_of_lanes(schedule, programs), cores_of_lanes(flat),
               priority_of_lanes(schedule, programs.size()), events_),
      partners_(partners),
      exchanges_(lanes_.size()),
      links_(partners.routes.size()),
      recorder_(max_steps, count_rows(programs), count_busy_lanes(programs), costs.disturbance.share > 0),
      solos_(programs.size()),
      recordings_(programs.size()),
      solo_on_(devices_.count(), kNone) {
  const std::size_t communicators = schedule.communicators.size();
  meeting_index_.assign(lanes_.size() * communicators, kNone);
  std::map<std::pair<LaneId, std::uint32_t>, std::uint32_t> meeting_at;
  std::size_t rows = 0;
  for (std::uint32_t rank = 0; rank < programs.size(); ++rank) {
    row_begin_.push_back(rows);
    if (network.is_closed_form()) recordings_[rank].resize(flat[rank]->shapes.size());
    rows += programs[rank].ops.size();
    for (LaneId id = 0; id < lanes_per_rank_; ++id) {
      const std::uint32_t number = rank * lanes_per_rank_ + id;
      Lane& lane = lanes_[number];
      lane.program = flat[rank].get();
      lane.ops = lane.program->ops.data() + lane.program->lane_begin[id];
      lane.length = lane.program->length(id);
      if (lane.length > 0) lane.state = State::blocked;
      for (std::uint32_t i = 0; i < lane.length; ++i) {
        if (lane.ops[i].kind != FlatKind::collective) continue;
        std::uint32_t& index = meeting_index_[number * communicators + lane.ops[i].communicator];
        if (index != kNone) continue;
        const std::uint32_t group = partners.instance_of[rank][lane.ops[i].communicator];
        const auto [found, fresh] = meeting_at.try_emplace({id, group}, static_cast<std::uint32_t>(meetings_.size()));
        if (fresh) {
          meetings_.emplace_back().group = group;
        }
        index = found->second;
        meetings_[index].lanes.push_back(number);
      }
    }
  }
}

std::int64_t Core::operations() const {
  std::int64_t total = played_;
  for (const Lane& lane : lanes_) total += static_cast<std::int64_t>(lane.finished);
  return total;
}

void Core::run() {
  bool any = false;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].length == 0) continue;
    any = true;
    resolve_waits(lane);
  }
  if (!any) throw input_error("simulation: the schedule has no operations");
  network_.run(*this);
  if (!finished_) throw runtime_failure(deadlock_message());
}

void Core::advance(Picoseconds until) {
  while (!finished_ && events_.next_time() != kNever && events_.next_time() <= until) {
    const EventHeap::Entry event = events_.fire();
    if (event.time > kHorizon)
      throw input_error(
          "simulation: simulated time has passed 26 days, which is as far as it reaches; the step is too "
          "long for this platform");
    switch (event.kind()) {
      case EventKind::finish:
        on_finish(event.lane(), event.time);
        break;
      case EventKind::start:
        devices_.on_start(event.lane(), event.time);
        break;
      case EventKind::request:
        if (disturb(event.lane())) {
          // What is simulated after all comes first.
          events_.schedule(event.lane(), event.time, EventKind::request);
          break;
        }
        devices_.on_request(event.lane(), event.time);
        drain_granted();
        break;
    }
    events_.settle();
  }
}

// ---- lanes and waits ----

void Core::resolve_waits(std::uint32_t number) {
  Lane& lane = lanes_[number];
  const FlatOp& op = current(lane);
  const FlatWait* waits = lane.program->waits.data() + op.wait_begin;
  while (lane.wait < op.wait_count) {
    const FlatWait& wait = waits[lane.wait];
    if (wait.steps_ago > lane.step) {
      ++lane.wait;
      continue;
    }
    const std::uint32_t on = number - number % lanes_per_rank_ + wait.lane;
    Lane& other = lanes_[on];
    const std::uint64_t required =
        static_cast<std::uint64_t>(lane.step - wait.steps_ago) * other.length + wait.position + 1;
    const bool is_start = wait.kind == EdgeKind::start_start;
    if ((is_start ? other.started : other.finished) >= required) {
      if (is_start && other.started == required) lane.waited = std::max(lane.waited, other.started_at);
      ++lane.wait;
      continue;
    }
    const std::uint32_t rank = rank_of(number);
    if (solos_[rank].plays && is_inside(solos_[rank], on, wait.kind, required)) {
      stop_playing(rank);  // its first operation may have started with that
      continue;
    }
    lane.blocked_kind = wait.kind;
    lane.blocked_until = required;
    lane.blocked_on = on;
    lane.next_blocked = other.first_blocked;
    other.first_blocked = number;
    return;
  }
  begin(number, lane.waited > lane.reached ? lane.waited + costs_.wake : lane.reached);
}

void Core::wake_blocked(std::uint32_t on, EdgeKind kind, Picoseconds time) {
  const std::uint64_t count = kind == EdgeKind::finish_start ? lanes_[on].finished : lanes_[on].started;
  // Who goes on waiting stays listed: a solo call that begins meanwhile may take its lane along.
  std::uint32_t woken = kNone;
  for (std::uint32_t* link = &lanes_[on].first_blocked; *link != kNone;) {
    const std::uint32_t number = *link;
    Lane& lane = lanes_[number];
    if (lane.blocked_kind == kind && lane.blocked_until <= count) {
      *link = std::exchange(lane.next_blocked, woken);
      woken = number;
    } else {
      link = &lane.next_blocked;
    }
  }
  while (woken != kNone) {
    const std::uint32_t number = woken;
    Lane& lane = lanes_[number];
    woken = lane.next_blocked;
    lane.blocked_on = kNone;
    lane.waited = std::max(lane.waited, time);
    ++lane.wait;
    resolve_waits(number);
  }
}

void Core::begin(std::uint32_t number, Picoseconds ready) {
  // No two runs of a call are the same where others take from its core.
  const bool can_play = current(lanes_[number]).shape != 0 && costs_.disturbance.share == 0;
  if (!can_play || !begin_solo(number, ready)) begin_operation(number, ready);
}

void Core::begin_operation(std::uint32_t number, Picoseconds ready) {
  Lane& lane = lanes_[number];
  const FlatOp& op = current(lane);
  lane.ready = ready;
  if (op.kind != FlatKind::compute) {
    lane.state = State::queueing;
    if (op.cores == 0 || devices_.hold(number, ready, op.cores)) communicate(number, ready);
    return;
  }
  lane.state = State::working;
  if (devices_.launch(number, ready, op.duration, op.cores, op.cls)) set_started(number, ready);
}

void Core::communicate(std::uint32_t number, Picoseconds start) {
  if (current(lanes_[number]).kind == FlatKind::collective)
    arrive(number, start);
  else
    exchange(number, start);
}

void Core::set_started(std::uint32_t number, Picoseconds time) {
  Lane& lane = lanes_[number];
  lane.start = lane.transfer = time;
  ++lane.started;
  lane.started_at = time;
  if (lane.first_blocked != kNone) wake_blocked(number, EdgeKind::start_start, time);
}

void Core::drain_granted() {
  // What starts may launch further lanes, but only an event can grant cores: the list does not grow meanwhile.
  for (const std::uint32_t lane : devices_.granted()) {
    const Picoseconds start = devices_.activity(lane).start;
    if (current(lanes_[lane]).kind == FlatKind::compute)
      set_started(lane, start);
    else if (lanes_[lane].state == State::queueing)
      communicate(lane, start);
  }
  devices_.granted().clear();
}

void Core::on_finish(std::uint32_t number, Picoseconds now) {
  const State state = lanes_[number].state;
  if (state == State::completing) {
    devices_.release_held(number, now);
    finish_operation(number, now);
    if (!devices_.granted().empty()) drain_granted();
    return;
  }
  if (state == State::playing) {
    end_playing(number, now);
    return;
  }
  devices_.on_finish(number, now);
  const FlatKind kind = current(lanes_[number]).kind;
  if (kind == FlatKind::collective)
    movement_ended(number, now);
  else if (kind == FlatKind::compute)
    finish_operation(number, now);
  else
    moved(number, now);
  if (!devices_.granted().empty()) drain_granted();
}

void Core::finish_operation(std::uint32_t number, Picoseconds now) {
  Lane& lane = lanes_[number];
  const std::uint32_t rank = rank_of(number);
  const std::uint32_t group = current(lane).group;
  TimelineRow* rows = recorder_.rows_of(lane.step, row_begin_[rank] + programs_[rank].ops.size());
  Solo& solo = solos_[rank];
  if (rows || solo.shape) {
    for (std::uint32_t i = 0; i < group; ++i) {
      const std::uint32_t op = lane.ops[lane.position + i].op;
      const FlatKind kind = current(lane).kind;
      const bool is_message = kind == FlatKind::send || kind == FlatKind::receive;
      TimelineRow row = {
          static_cast<std::int32_t>(programs_[rank].rank), op, lane.ready, lane.start, lane.transfer, now};
      if (is_message) {
        row.transfer = exchanges_[number].met[i];
        row.waited = std::max<Picoseconds>(0, now - exchanges_[number].done[i]);
      }
      if (rows) rows[row_begin_[rank] + op] = row;
      if (solo.shape) record(solo, op, row);
    }
  }
  if (pass(number, group, now)) return;
  go_on(number, now);
}

// The lane leaves `operations` behind, the last of which ended at `end`. True when that ends the simulation.
bool Core::pass(std::uint32_t number, std::uint32_t operations, Picoseconds end) {
  Lane& lane = lanes_[number];
  lane.finished += operations;
  lane.wait = 0;
  lane.waited = 0;
  lane.reached = end + costs_.op_overhead;
  lane.state = State::blocked;
  lane.position += operations;
  if (lane.position < lane.length) return false;
  lane.position = 0;
  ++lane.step;
  finished_ = recorder_.lane_done(lane.step - 1, end);
  if (lane.step == max_steps_) lane.state = State::done;
  if (finished_) count_played(end, number);
  return finished_;
}

// Wakes who waited for the lane, and has it look at its next operation; a solo call may have taken it along.
void Core::go_on(std::uint32_t number, Picoseconds now) {
  if (lanes_[number].first_blocked != kNone) wake_blocked(number, EdgeKind::finish_start, now);
  if (lanes_[number].state == State::blocked && lanes_[number].blocked_on == kNone) resolve_waits(number);
}

}  // namespace stretto::sim
