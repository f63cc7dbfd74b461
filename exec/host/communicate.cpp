#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "exec/host/executor_state.hpp"
#include "model/ring.hpp"
#include "model/schedule/partners.hpp"
#include "model/schedule/residency.hpp"

namespace stretto::host {

void HostExecutor::State::meet_partners(const Partners& partners) {
  for (const CommunicatorInstance& instance : partners.instances)
    groups.push_back(std::make_unique<CommGroup>(instance.members));
  for (std::size_t route = 0; route < partners.routes.size(); ++route) links.push_back(std::make_unique<Link>());
  for (auto& rank : ranks) {
    for (const std::uint32_t instance : partners.instance_of[rank->place])
      rank->group_of.push_back(instance == Partners::kNone ? nullptr : groups[instance].get());
    for (const std::uint32_t route : partners.route_of[rank->place])
      rank->link_of.push_back(route == Partners::kNone ? nullptr : links[route].get());
  }
}

Clock::time_point HostExecutor::State::meet(Rank& rank, std::uint32_t op, CommGroup& group) {
  const Barrier::Crossing meeting = group.barrier.meet(timeout());
  if (meeting.outcome != WaitOutcome::met)
    give_up(
        rank, op, meeting.outcome,
        std::to_string(meeting.missing) + " of " + std::to_string(group.members.size()) + " ranks that did not come");
  return meeting.complete;
}

void HostExecutor::State::give_up(const Rank& rank, std::uint32_t op, WaitOutcome outcome, const std::string& whom) {
  if (outcome == WaitOutcome::aborted) throw Aborted{};
  throw runtime_failure(label(schedule, rank.program.ops[op]) + " waited " + std::to_string(options.timeout_s) +
                        " s for " + whom);
}

Residence::Residence(CorePool& cores, int count, int priority) : cores_(cores), priority_(priority) {
  if (count == 0) return;
  auto held = cores.hold(count, priority);
  if (!held) throw Aborted{};
  held_ = std::move(*held);
}

void Residence::release() {
  for (const int core : std::exchange(held_, {})) cores_.release(core);
}

// Returns the time at which the scenario's link, or the communicator's channels, would have moved the bytes.
Clock::time_point HostExecutor::State::deadline_of(Clock::time_point begin, const Communicator& communicator,
                                                   std::int64_t steps, std::int64_t bytes) const {
  if (options.link_GBps <= 0) return begin;
  const double channels_GBps = resident_cores(communicator) * options.channel_GBps;
  const double rate_GBps = channels_GBps > 0 ? std::min(channels_GBps, options.link_GBps) : options.link_GBps;
  const double ns = double(steps) * options.link_latency_us * 1e3 + double(bytes) / rate_GBps;
  return begin + std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

// Runs sends and receives that are issued as one group: all are posted, then the receives are served, then each is
// waited for in turn.
void HostExecutor::State::exchange(Rank& rank, LaneId lane, std::uint64_t step, std::span<const std::uint32_t> group,
                                   std::vector<TimelineRow>& rows) {
  const Picoseconds previous_end = rows.empty() ? 0 : rows.back().end;
  const std::size_t first = rows.size();
  bool waited = false;
  for (const std::uint32_t op : group) {
    if (options.before_operation) options.before_operation(rank.program.rank, op);
    waited = await(rank, rank.program.ops[op], step) || waited;
  }
  const Picoseconds ready = waited || previous_end == 0 ? at(Clock::now()) : previous_end;
  const auto communicator = [&](std::uint32_t op) -> const Communicator& {
    return schedule.communicators[communicator_of(rank.program.work_of(op))];
  };
  int channels = 0;
  for (const std::uint32_t op : group) channels = std::max(channels, resident_cores(communicator(op)));
  Residence residence(*rank.cores, channels, schedule.lanes[lane].priority);
  std::vector<std::uint64_t> numbers;
  for (const std::uint32_t op : group) {
    TimelineRow row;
    row.rank = static_cast<std::int32_t>(rank.place);
    row.op = op;
    row.ready = ready;
    row.start = channels > 0 ? at(Clock::now()) : ready;
    rows.push_back(row);
    const OpId id = rank.program.ops[op].op;
    const bool is_send = std::get<PointToPoint>(schedule.operations[id].work).is_send;
    const Operand& buffer = rank.operands.of(op).front();
    if (!wires)
      numbers.push_back(is_send ? rank.link_of[id]->post_send(buffer.data) : rank.link_of[id]->post_receive());
    advance(rank, lane, &LaneProgress::started);
  }
  if (wires) return exchange_remotely(rank, lane, group, residence, std::span(rows).subspan(first));
  std::vector<Clock::time_point> done(group.size());  // [operation of the group] time at which it would be over alone
  for (const bool sends : {false, true})
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::uint32_t op = group[i];
      const OpId id = rank.program.ops[op].op;
      const auto& work = std::get<PointToPoint>(schedule.operations[id].work);
      if (work.is_send != sends) continue;
      const Clock::time_point reached = Clock::now();
      const Link::Ends meeting = rank.link_of[id]->meet(numbers[i], timeout());
      const std::string peer = "rank " + std::to_string(peer_of(schedule, work, rank.program.rank).rank);
      if (meeting.outcome != WaitOutcome::met) give_up(rank, op, meeting.outcome, peer + " that did not come");
      const Operand& buffer = rank.operands.of(op).front();
      rows[first + i].transfer = at(meeting.complete);
      rows[first + i].end =
          at(deadline_of(meeting.complete, communicator(op), 1, work.elements * bytes_of(buffer.dtype)));
      if (sends) {
        const Link::Delivery delivery = rank.link_of[id]->await_delivery(numbers[i], timeout());
        if (delivery.outcome != WaitOutcome::met) give_up(rank, op, delivery.outcome, peer + " to take the message");
        // Where this rank slept for the delivery, the wake-up is part of the time.
        done[i] = delivery.alone + (delivery.at > reached ? Clock::now() - delivery.at : Clock::duration::zero());
        continue;
      }
      residence.work([&] {
        std::memcpy(buffer.data, meeting.in, static_cast<std::size_t>(work.elements * bytes_of(buffer.dtype)));
      });
      done[i] = meeting.complete + (Clock::now() - std::max(meeting.complete, reached));
      rank.link_of[id]->delivered(numbers[i], done[i]);
    }
  for (std::size_t i = 0; i < group.size(); ++i) {
    TimelineRow& row = rows[first + i];
    const Clock::time_point deadline = origin + std::chrono::nanoseconds(row.end / 1000);
    const bool sleeps = deadline > Clock::now();
    if (sleeps) std::this_thread::sleep_until(deadline);
    const Clock::time_point end = Clock::now();
    row.end = at(end);
    if (group.size() > 1 && !sleeps) row.waited = std::max<Picoseconds>(0, row.end - at(std::max(done[i], deadline)));
    if (i + 1 == group.size()) residence.release();  // before a rank is woken that needs a core
    advance(rank, lane, &LaneProgress::finished);
  }
}

void HostExecutor::State::communicate(Rank& rank, std::uint32_t op, const Collective& collective, TimelineRow& row) {
  const Communicator& communicator = schedule.communicators[collective.communicator];
  const LaneId lane = rank.program.ops[op].lane;
  const int channels = resident_cores(communicator);
  const Residence residence(*rank.cores, channels, schedule.lanes[lane].priority);
  row.start = channels > 0 ? at(Clock::now()) : row.ready;
  advance(rank, lane, &LaneProgress::started);
  if (wires) {
    row.transfer = at(Clock::now());
    communicate_remotely(rank, op, collective, residence);
    row.end = at(Clock::now());
    return;
  }
  CommGroup& group = *rank.group_of[collective.communicator];
  const int members = static_cast<int>(group.members.size());
  const auto operands = rank.operands.of(op);
  const int self =
      static_cast<int>(std::find(group.members.begin(), group.members.end(), rank.place) - group.members.begin());
  // All members have left the previous meeting when the last of its phases is over.
  group.buffers[static_cast<std::size_t>(self)] = local::buffers_of(collective, operands);
  Clock::time_point end = meet(rank, op, group);
  row.transfer = at(end);
  const Dtype dtype = operands.front().dtype;
  const RingCost ring = ring_cost(collective.kind, dtype, collective.elements, members);
  const Clock::time_point deadline = deadline_of(end, communicator, ring.steps, ring.edge_bytes);
  for (int phase = 0; phase < local::phases(collective.kind); ++phase) {
    residence.work([&] { local::run_share(collective, dtype, self, group.buffers, phase); });
    end = meet(rank, op, group);
  }
  if (deadline > end) {
    std::this_thread::sleep_until(deadline);
    end = Clock::now();
  }
  row.end = at(std::max(end, deadline));
}

}  // namespace stretto::host
