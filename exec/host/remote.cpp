// Communication of a rank whose peers are other processes.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "exec/host/executor_state.hpp"
#include "model/schedule/parcel.hpp"
#include "model/schedule/partners.hpp"

namespace stretto::host {

void HostExecutor::State::reach_others() {
  abort_event = ::eventfd(0, EFD_CLOEXEC);
  if (abort_event < 0) throw runtime_failure("waiting for other processes: " + std::string(std::strerror(errno)));
  wires.emplace(*options.processes, schedule, ranks.front()->program, options.timeout_s);
  options.processes->on_failure(
      [this](const std::string& reason) { fail(std::make_exception_ptr(runtime_failure(reason))); });
}

void HostExecutor::State::move(const Rank& rank, std::uint32_t op, std::vector<wire::Transfer> transfers) {
  using Outcome = wire::Exchanged::Outcome;
  const auto [outcome, peer] = wire::exchange(std::move(transfers), abort_event, timeout());
  switch (outcome) {
    case Outcome::done:
      return;
    case Outcome::aborted:
      throw Aborted{};
    case Outcome::timed_out:
      give_up(rank, op, WaitOutcome::timed_out, "rank " + std::to_string(peer));
    case Outcome::closed: {
      // The group knows the reason, or will soon.
      std::unique_lock lock(command_mutex);
      for (int i = 0; i < 200 && !aborted; ++i) all_idle.wait_for(lock, std::chrono::milliseconds(10));
      if (aborted) throw Aborted{};
      throw runtime_failure(label(schedule, rank.program.ops[op]) + ": rank " + std::to_string(peer) +
                            " has closed its connection");
    }
  }
}

void HostExecutor::State::exchange_remotely(Rank& rank, LaneId lane, std::span<const std::uint32_t> group,
                                            Residence& residence, std::span<TimelineRow> rows) {
  std::vector<wire::Transfer> transfers;
  for (const std::uint32_t op : group) {
    const auto& message = std::get<PointToPoint>(rank.program.work_of(op));
    const Operand& buffer = rank.operands.of(op).front();
    auto* data = static_cast<std::byte*>(buffer.data);
    const auto bytes = static_cast<std::size_t>(message.elements * bytes_of(buffer.dtype));
    const std::int64_t peer = peer_of(schedule, message, rank.program.rank).rank;
    wire::Transfer transfer{peer, wires->to(message.communicator, peer).descriptor(), {}, {}};
    if (message.is_send)
      transfer.out = {data, bytes};
    else
      transfer.in = {data, bytes};
    transfers.push_back(transfer);
  }
  for (TimelineRow& row : rows) row.transfer = at(Clock::now());
  move(rank, group.front(), std::move(transfers));
  residence.release();
  for (TimelineRow& row : rows) {
    row.end = at(Clock::now());
    advance(rank, lane, &LaneProgress::finished);
  }
}

// Every member sends every other member its parcels. The bytes on each member's link are those of a ring, and sums are
// in the order of ranks, so that the result equals that of ranks in one process, bit for bit.
void HostExecutor::State::communicate_remotely(Rank& rank, std::uint32_t op, const Collective& collective,
                                               const Residence& residence) {
  const std::vector<std::int64_t> members =
      members_of(schedule, schedule.communicators[collective.communicator], rank.program.rank);
  const auto count = static_cast<std::int64_t>(members.size());
  const auto self = std::find(members.begin(), members.end(), rank.program.rank) - members.begin();
  const std::span<const Operand> operands = rank.operands.of(op);
  const Dtype dtype = operands.front().dtype;
  const auto* in = static_cast<const std::byte*>(operands.front().data);
  auto* out = static_cast<std::byte*>(operands.back().data);
  if (count == 1) {
    const local::Buffers alone = local::buffers_of(collective, operands);
    residence.work([&] { local::run_share(collective, dtype, 0, {&alone, 1}, 0); });
    return;
  }
  const CollectiveRule rule = rule_of(collective.kind);
  const std::int64_t width = bytes_of(dtype);
  const std::int32_t* offsets = local::buffers_of(collective, operands).offsets;
  if (collective.by_rows()) local::require_fit(collective, offsets, count);
  for (int phase = 0; phase < rule.phases; ++phase) {
    const CollectivePhase& moves = rule.phase[static_cast<std::size_t>(phase)];
    const auto parcel = [&](std::int64_t giver, std::int64_t getter) {
      if (collective.by_rows()) return parcel_of_rows(collective, offsets, count, giver, getter);
      return parcel_of(rule, phase, collective.elements, count, giver, getter);
    };
    const auto size = [&](const Parcel& of) { return static_cast<std::size_t>(of.elements * width); };
    const std::byte* given = moves.from_result ? out : in;
    const Parcel own = parcel(self, self);
    std::vector<std::byte>& received = rank.received[rank.program.ops[op].lane];
    if (moves.reduces) received.resize(std::max(received.size(), size(own) * static_cast<std::size_t>(count)));
    // Each member begins at its right neighbour, so that not all send to one member at once.
    std::vector<wire::Transfer> transfers;
    std::vector<const void*> addends(static_cast<std::size_t>(count), given + own.source * width);
    for (std::int64_t step = 1; step < count; ++step) {
      const auto member = static_cast<std::size_t>((self + step) % count);
      const std::int64_t peer = members[member];
      const Parcel theirs = parcel(self, (self + step) % count), mine = parcel((self + step) % count, self);
      std::byte* to = moves.reduces ? received.data() + member * size(mine) : out + mine.target * width;
      addends[member] = to;
      transfers.push_back({peer,
                           wires->to(collective.communicator, peer).descriptor(),
                           {given + theirs.source * width, size(theirs)},
                           {to, size(mine)}});
    }
    move(rank, op, std::move(transfers));
    std::byte* to = out + own.target * width;
    if (moves.reduces)
      residence.work([&] {
        local::reduce(collective.reduction, dtype, own.elements, addends, static_cast<std::size_t>(self), to);
      });
    else if (given + own.source * width != to)
      std::memcpy(to, given + own.source * width, size(own));
  }
}

}  // namespace stretto::host
