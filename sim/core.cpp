#include "sim/core.hpp"

#include <algorithm>
#include <cassert>
#include <map>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

std::vector<std::uint32_t> devices_of_lanes(const SimInputs& inputs) {
  std::map<std::int64_t, std::uint32_t> number;
  std::vector<std::uint32_t> result;
  for (const BoundProgram& program : inputs.programs) {
    const std::int64_t device = program.rank / std::max<std::int64_t>(1, inputs.schedule.placement.ranks_per_device);
    const std::uint32_t at = number.try_emplace(device, static_cast<std::uint32_t>(number.size())).first->second;
    result.insert(result.end(), inputs.schedule.lanes.size(), at);
  }
  return result;
}

std::vector<int> priority_of_lanes(const SimInputs& inputs) {
  std::vector<int> result;
  for (std::size_t rank = 0; rank < inputs.programs.size(); ++rank)
    for (const Lane& lane : inputs.schedule.lanes) result.push_back(lane.priority);
  return result;
}

std::vector<int> cores_of_lanes(const SimInputs& inputs) {
  std::vector<int> result;
  for (const auto& program : inputs.flat)
    result.insert(result.end(), program->lane_cores.begin(), program->lane_cores.end());
  return result;
}

}  // namespace

Core::Core(const SimInputs& inputs, NetworkModel& network, int max_steps, const SimOptions& options)
    : inputs_(inputs),
      network_(network),
      max_steps_(max_steps),
      events_(inputs.programs.size() * inputs.schedule.lanes.size()),
      lanes_(inputs),
      devices_(inputs.costs, devices_of_lanes(inputs), cores_of_lanes(inputs), priority_of_lanes(inputs), events_),
      collectives_(inputs, lanes_, devices_, events_, network),
      exchanges_(inputs, lanes_, devices_, events_, network, collectives_.transfers()),
      // Two runs of a call differ where other tenants take time from its cores, or where its flows may meet others.
      call_cache_(inputs, lanes_, devices_, events_,
                  options.caches_solo_calls && network.is_closed_form() && inputs.costs.disturbance.share == 0),
      recorder_(max_steps, inputs, inputs.costs.disturbance.share > 0, options.stops_when_steady),
      repeated_step_(inputs, lanes_, call_cache_, recorder_,
                     options.knows_repeated_step && options.stops_when_steady && max_steps > 1 &&
                         network.is_closed_form() && inputs.costs.disturbance.share == 0) {}

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
    const EventHeap::Event event = events_.fire();
    now_ = event.time;
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
        on_request(event.lane(), event.time);
        break;
    }
    events_.settle();
    latest_ = std::max(latest_, event.time);
    if (repeated_step_.is_due() && !finished_ && events_.next_time() > latest_)
      finished_ = repeats_ = repeated_step_.is_repeated(latest_);
  }
}

void Core::transfer_done(std::uint32_t transfer, Picoseconds now) {
  if (transfer < collectives_.transfers())
    collectives_.transfer_done(transfer, now);
  else
    exchanges_.transfer_done(transfer, now);
}

// ---- an operation begins ----

void Core::resolve_waits(std::uint32_t number) {
  while (const std::optional<UnmetWait> wait = lanes_.next_unmet(number)) {
    if (!call_cache_.is_inside(*wait)) return lanes_.block(number, *wait);
    go_back(lanes_.rank_of(number));  // the call's first operation may have started because of that
  }
  const Picoseconds ready = lanes_.ready_time(number);
  if (!call_cache_.begin(number, ready)) begin_operation(number, ready);
}

void Core::begin_operation(std::uint32_t number, Picoseconds ready) {
  Cursor& lane = lanes_[number];
  const FlatOp& op = lane.current();
  lane.ready = ready;
  if (op.kind == FlatKind::compute) {
    lane.stage = LaneStage::working;
    if (devices_.launch(number, ready, op.duration, op.cores, op.cls)) set_started(number, 1, ready);
    return;
  }
  lane.stage = LaneStage::queueing;
  if (op.cores == 0 || devices_.hold(number, ready, op.cores)) communicate(number, ready);
}

void Core::communicate(std::uint32_t number, Picoseconds start) {
  Cursor& lane = lanes_[number];
  lane.stage = LaneStage::meeting;
  if (lane.current().kind == FlatKind::collective) {
    set_started(number, 1, start);
    collectives_.arrive(number, start);
    return;
  }
  const std::uint32_t group = lane.current().group;
  const std::vector<std::uint32_t> receivers = exchanges_.post(number, start);
  set_started(number, group, start);
  for (const std::uint32_t receiver : receivers) exchanges_.serve(receiver);
}

void Core::set_started(std::uint32_t number, std::uint32_t operations, Picoseconds time) {
  Cursor& lane = lanes_[number];
  lane.start = lane.transfer = time;
  lanes_.set_started(number, operations, time);
  if (lane.first_blocked != kNone) wake(number, EdgeKind::start_start, time);
}

void Core::wake(std::uint32_t on, EdgeKind kind, Picoseconds time) {
  for (std::uint32_t woken = lanes_.take_woken(on, kind); woken != kNone;) {
    const std::uint32_t number = woken;
    woken = lanes_.wake(number, time);
    resolve_waits(number);
  }
}

void Core::on_request(std::uint32_t number, Picoseconds now) {
  if (const std::uint32_t rank = call_cache_.disturbed_by(number); rank != kNone) {
    go_back(rank);
    // A call that must be simulated after all has events that come first.
    events_.schedule(number, now, EventKind::request);
    return;
  }
  devices_.on_request(number, now);
  start_granted();
}

// Starts lanes that have just received their cores.
void Core::start_granted() {
  // A started operation may launch further lanes, but only an event can grant cores: the list does not grow meanwhile.
  for (const std::uint32_t number : devices_.granted()) {
    const Picoseconds start = devices_.activity(number).start;
    if (lanes_[number].current().kind == FlatKind::compute)
      set_started(number, 1, start);
    else if (lanes_[number].stage == LaneStage::queueing)
      communicate(number, start);
  }
  devices_.granted().clear();
}

// ---- an operation ends ----

void Core::on_finish(std::uint32_t number, Picoseconds now) {
  switch (lanes_[number].stage) {
    case LaneStage::playing:
      return end_playing(number, now);
    case LaneStage::completing:
      devices_.release_held(number, now);
      end_operation(number, now);
      break;
    default:
      devices_.on_finish(number, now);
      end_working(number, now);
  }
  if (!devices_.granted().empty()) start_granted();
}

void Core::end_working(std::uint32_t number, Picoseconds now) {
  switch (lanes_[number].current().kind) {
    case FlatKind::compute:
      return end_operation(number, now);
    case FlatKind::collective:
      return collectives_.movement_ended(number, now);
    case FlatKind::send:
    case FlatKind::receive:
      return exchanges_.movement_ended(number, now);
  }
}

void Core::end_operation(std::uint32_t number, Picoseconds now) {
  write_rows(number, now);
  if (!leave(number, lanes_[number].current().group, now)) go_on(number, now);
}

void Core::write_rows(std::uint32_t number, Picoseconds end) {
  const Cursor& lane = lanes_[number];
  const std::uint32_t rank = lanes_.rank_of(number);
  TimelineRow* rows = recorder_.rows_of(lane.step, rank);
  const FlatOp& first = lane.current();
  for (std::uint32_t i = 0; i < first.group; ++i) {
    const std::uint32_t op = lane.ops[lane.position + i].op;
    TimelineRow row = {
        static_cast<std::int32_t>(inputs_.programs[rank].rank), op, lane.ready, lane.start, lane.transfer, end};
    if (first.kind == FlatKind::send || first.kind == FlatKind::receive) {
      row.transfer = exchanges_.met(number, i);
      row.waited = std::max<Picoseconds>(0, end - exchanges_.done_alone(number, i));
    }
    rows[op] = row;
    if (call_cache_.is_recording(rank)) call_cache_.record(rank, op, row);
  }
}

// Advances the lane by `operations`. Returns true when that ends the simulation.
bool Core::leave(std::uint32_t number, std::uint32_t operations, Picoseconds end) {
  const bool ends_step = lanes_.leave(number, operations, end);
  repeated_step_.left(number);
  if (!ends_step) return false;
  Cursor& lane = lanes_[number];
  if (lane.step == max_steps_) lane.stage = LaneStage::done;
  finished_ = recorder_.lane_done(lane.step - 1, number, end);
  if (finished_) played_ = call_cache_.finished_before(end, number);
  return finished_;
}

// Wakes the lanes that waited for this one, and lets the lane look at its next operation; a solo call may have advanced
// it too.
void Core::go_on(std::uint32_t number, Picoseconds now) {
  const Cursor& lane = lanes_[number];
  if (lane.first_blocked != kNone) wake(number, EdgeKind::finish_start, now);
  if (lane.stage == LaneStage::blocked && lane.blocked_on == kNone) resolve_waits(number);
}

// ---- solo calls ----

void Core::end_playing(std::uint32_t number, Picoseconds now) {
  const std::uint32_t rank = lanes_.rank_of(number), base = lanes_.first_of(rank);
  const SoloRun run = call_cache_.end(rank);
  const std::vector<SoloShape::OnLane>& on_lanes = run.shape->lanes;
  run.write_rows(recorder_.rows_of(lanes_[number].step, rank), run.shape->count);
  std::uint32_t operations_of_last = 0;
  for (const SoloShape::OnLane& on : on_lanes) {
    if (on.lane != run.shape->last_lane) {
      pass(run, base + on.lane, on.count);
      continue;
    }
    operations_of_last = on.count;
    lanes_.set_started(number, on.count, run.at(last_of(run, number, on.count).start));
  }
  for (const SoloShape::OnLane& on : on_lanes)
    if (on.lane != run.shape->last_lane) resolve_waits(base + on.lane);
  if (!leave(number, operations_of_last, now)) go_on(number, now);
}

// Returns the recorded row of the last of the lane's next `count` operations.
const TimelineRow& Core::last_of(const SoloRun& run, std::uint32_t number, std::uint32_t count) const {
  const Cursor& lane = lanes_[number];
  return run.recorded(lane.ops[lane.position + count - 1].op);
}

// Advances the lane by `count` operations of the call, which do not end the simulation.
void Core::pass(const SoloRun& run, std::uint32_t number, std::uint32_t count) {
  const TimelineRow& last = last_of(run, number, count);
  lanes_.set_started(number, count, run.at(last.start));
  [[maybe_unused]] const bool is_end = leave(number, count, run.at(last.end));
  assert(!is_end);
}

// Returns to the latest entry of the call that the rank plays.
void Core::go_back(std::uint32_t rank) {
  const SoloRun run = call_cache_.stop(rank);
  const std::vector<SoloRecording::Entry>& entries = run.recording->entries;
  std::size_t to = run.entry;
  while (to + 1 < entries.size() && run.at(run.recording->rows[entries[to + 1].op].ready) < now_) ++to;
  const SoloShape& rest = entries[to].rest;
  const std::uint32_t base = lanes_.first_of(rank), first = base + rest.lanes.front().lane;
  run.write_rows(recorder_.rows_of(lanes_[first].step, rank), entries[to].op - entries[run.entry].op);
  for (const SoloShape::OnLane& on : run.shape->lanes) {
    std::uint32_t passed = on.count;
    for (const SoloShape::OnLane& left : rest.lanes)
      if (left.lane == on.lane) passed -= left.count;
    if (passed > 0) pass(run, base + on.lane, passed);
  }
  for (const SoloShape::OnLane& on : run.shape->lanes)
    if (base + on.lane != first) resolve_waits(base + on.lane);
  begin_operation(first, run.at(run.recording->rows[entries[to].op].ready));
}

// ---- errors ----

std::string Core::deadlock_message() const {
  constexpr int kMost = 6;
  std::string message = "simulation: the schedule deadlocks:";
  int blocked = 0;
  for (std::uint32_t number = 0; number < lanes_.size(); ++number) {
    const Cursor& lane = lanes_[number];
    if (lane.stage == LaneStage::done || ++blocked > kMost) continue;
    message += std::string(blocked > 1 ? ";" : "") + " " + lanes_.describe(number) + " waits for ";
    if (lane.blocked_on != kNone)
      message += lanes_.describe_wait(number);
    else if (lane.stage != LaneStage::meeting)
      message += "cores of its device";
    else if (lane.current().kind == FlatKind::collective)
      message += collectives_.describe_missing(number);
    else
      message += "the other end of its message";
  }
  if (blocked > kMost) message += "; and " + std::to_string(blocked - kMost) + " more lanes";
  return message;
}

}  // namespace stretto::sim
