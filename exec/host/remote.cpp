// Communication of a rank whose peers are other processes.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "exec/host/executor_state.hpp"

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
      // The group knows why, or will in a moment.
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

// Every member sends every other what that one sums, and then the sum to all: the bytes on each member's link are those
// of a ring, and sums are in the order of ranks, so that the result is that of ranks in one process, bit for bit.
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
    const local::Buffers alone{in, out};
    residence.work([&] { local::run_share(collective.kind, dtype, collective.elements, 0, {&alone, 1}, 0); });
    return;
  }
  struct Part {
    std::size_t begin, size;
  };
  const auto part_of = [&](std::int64_t member) -> Part {
    const local::Slice slice = local::slice_of(collective.elements, count, member);
    return {static_cast<std::size_t>(slice.begin * bytes_of(dtype)),
            static_cast<std::size_t>((slice.end - slice.begin) * bytes_of(dtype))};
  };
  const Part mine = part_of(self);
  const auto with_others = [&](auto fill) {
    std::vector<wire::Transfer> transfers;
    // Each begins at its right neighbour, so that not all send to the same at once.
    for (std::int64_t step = 1; step < count; ++step) {
      const std::int64_t member = (self + step) % count, peer = members[static_cast<std::size_t>(member)];
      wire::Transfer transfer{peer, wires->to(collective.communicator, peer).descriptor(), {}, {}};
      fill(member, transfer);
      transfers.push_back(transfer);
    }
    move(rank, op, std::move(transfers));
  };
  const auto sum_mine = [&](std::byte* sum) {
    std::vector<std::byte>& received = rank.received[rank.program.ops[op].lane];
    received.resize(std::max(received.size(), mine.size * static_cast<std::size_t>(count)));
    const auto place = [&](std::int64_t member) {
      return received.data() + static_cast<std::size_t>(member) * mine.size;
    };
    with_others([&](std::int64_t member, wire::Transfer& transfer) {
      const Part theirs = part_of(member);
      transfer.out = {in + theirs.begin, theirs.size};
      transfer.in = {place(member), mine.size};
    });
    std::vector<const void*> addends;
    for (std::int64_t member = 0; member < count; ++member)
      addends.push_back(member == self ? in + mine.begin : place(member));
    const std::int64_t elements = static_cast<std::int64_t>(mine.size) / bytes_of(dtype);
    residence.work([&] { local::add(dtype, elements, addends, sum); });
  };
  const auto gather = [&](const std::byte* own) {
    with_others([&](std::int64_t member, wire::Transfer& transfer) {
      const Part theirs = part_of(member);
      transfer.out = {own, mine.size};
      transfer.in = {out + theirs.begin, theirs.size};
    });
    if (own != out + mine.begin) std::memcpy(out + mine.begin, own, mine.size);
  };
  switch (collective.kind) {
    case CollectiveKind::all_gather:
      return gather(in);
    case CollectiveKind::reduce_scatter:
      return sum_mine(out);
    case CollectiveKind::all_reduce:
      sum_mine(out + mine.begin);
      return gather(out + mine.begin);
  }
}

}  // namespace stretto::host
