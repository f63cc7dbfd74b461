#include "exec/cuda/module/nccl_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace stretto::cuda {
namespace {

using Kind = NcclGroup::Kind;

const PointToPoint* message_of(const Schedule& schedule, OpId op) {
  return std::get_if<PointToPoint>(&schedule.operations[op].work);
}

// [member] the smallest colour that none before it has which it sends to or receives from.
std::vector<std::uint8_t> colours_of(const Schedule& schedule, std::uint32_t communicator,
                                     const std::vector<std::int64_t>& members) {
  const auto index_of = [&](std::int64_t rank) {
    return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  };
  std::vector<std::set<std::size_t>> neighbours(members.size());
  for (OpId op = 0; op < schedule.operations.size(); ++op)
    if (const PointToPoint* message = message_of(schedule, op); message && message->communicator == communicator)
      for (std::size_t m = 0; m < members.size(); ++m) {
        const std::size_t peer = index_of(peer_of(schedule, *message, members[m]).rank);
        neighbours[m].insert(peer);
        neighbours[peer].insert(m);
      }
  std::vector<std::uint8_t> colours(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    std::set<std::uint8_t> taken;
    for (const std::size_t other : neighbours[m])
      if (other < m) taken.insert(colours[other]);
    while (taken.contains(colours[m])) ++colours[m];
  }
  return colours;
}

// [lane] of messages that are issued in groups: their first communicator.
std::map<LaneId, std::uint32_t> joined_lanes(const Schedule& schedule) {
  std::map<LaneId, std::set<std::pair<std::uint32_t, bool>>> kinds;
  for (OpId op = 0; op < schedule.operations.size(); ++op)
    if (const PointToPoint* message = message_of(schedule, op))
      kinds[schedule.operations[op].lane].insert({message->communicator, message->is_send});
  std::map<LaneId, std::uint32_t> first;
  for (const auto& [lane, of_lane] : kinds)
    if (of_lane.size() > 1) first[lane] = of_lane.begin()->first;
  return first;
}

// The communicators of a rank's messages to or from a peer on a lane, in the order of the calls.
std::vector<std::uint32_t> words(const Schedule& schedule, const BoundProgram& program, LaneId lane, std::int64_t peer,
                                 bool is_send) {
  std::vector<std::uint32_t> all;
  const std::vector<std::uint32_t>& ops = program.lanes[lane];
  for (std::size_t i = 0; i < ops.size();) {
    std::size_t end = i + 1;
    while (end < ops.size() && program.ops[ops[end]].joined) ++end;
    if (message_of(schedule, program.ops[ops[i]].op) == nullptr) {  // a collective of the same lane
      i = end;
      continue;
    }
    for (const std::uint32_t op :
         call_order(schedule, program,
                    {ops.begin() + static_cast<std::ptrdiff_t>(i), ops.begin() + static_cast<std::ptrdiff_t>(end)})) {
      const PointToPoint& message = *message_of(schedule, program.ops[op].op);
      if (message.is_send == is_send && peer_of(schedule, message, program.rank).rank == peer)
        all.push_back(message.communicator);
    }
    i = end;
  }
  return all;
}

void require_one_order(const Schedule& schedule, const BoundProgram& program, LaneId lane) {
  std::set<std::int64_t> peers;
  for (const std::uint32_t op : program.lanes[lane])
    if (const PointToPoint* message = message_of(schedule, program.ops[op].op))
      peers.insert(peer_of(schedule, *message, program.rank).rank);
  for (const std::int64_t peer : peers) {
    const std::vector<std::uint32_t> sent = words(schedule, program, lane, peer, true);
    // With one communicator between them the order is that of the messages.
    if (sent.empty() || std::set(sent.begin(), sent.end()).size() == 1) continue;
    if (sent != words(schedule, bind(schedule, peer), lane, program.rank, false))
      throw runtime_failure(fmt::format(
          "joined messages from rank {} to rank {} are received in another order than they are sent in, which NCCL's "
          "communicators do not allow; overlap.batch_p2p_comm = false issues them one by one",
          program.rank, peer));
  }
}

}  // namespace

std::vector<std::uint32_t> call_order(const Schedule& schedule, const BoundProgram& program,
                                      std::vector<std::uint32_t> joined) {
  std::stable_sort(joined.begin(), joined.end(), [&](std::uint32_t a, std::uint32_t b) {
    return message_of(schedule, program.ops[a].op)->communicator <
           message_of(schedule, program.ops[b].op)->communicator;
  });
  return joined;
}

NcclGroups find_nccl_groups(const Schedule& schedule, const BoundProgram& program) {
  const std::map<LaneId, std::uint32_t> joined = joined_lanes(schedule);
  std::map<std::uint32_t, std::vector<std::int64_t>> members;  // [communicator]
  std::map<std::uint32_t, std::vector<std::uint8_t>> colours;  // [communicator of messages]
  NcclGroups groups;
  for (const Operation& operation : schedule.operations) {
    const auto* collective = std::get_if<Collective>(&operation.work);
    const auto* message = std::get_if<PointToPoint>(&operation.work);
    if (collective == nullptr && message == nullptr) continue;
    const std::uint32_t index = collective ? collective->communicator : message->communicator;
    if (!members.contains(index)) members[index] = members_of(schedule, schedule.communicators[index], program.rank);
    if (members[index].size() < 2) continue;
    if (collective) {
      groups.all.insert({index, Kind::collectives, 0});
    } else if (const auto lane = joined.find(operation.lane); lane != joined.end()) {
      groups.all.insert({lane->second, Kind::joined, 0});
    } else {
      if (!colours.contains(index)) colours[index] = colours_of(schedule, index, members[index]);
      for (const std::uint8_t colour : colours[index]) groups.all.insert({index, Kind::messages, colour});
    }
  }
  groups.of_op.resize(program.ops.size());
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const Operation& operation = schedule.operations[program.ops[op].op];
    if (const auto* collective = std::get_if<Collective>(&operation.work))
      groups.of_op[op] = {collective->communicator, Kind::collectives, 0};
    const auto* message = std::get_if<PointToPoint>(&operation.work);
    if (message == nullptr) continue;
    if (const auto lane = joined.find(operation.lane); lane != joined.end()) {
      groups.of_op[op] = {lane->second, Kind::joined, 0};
      continue;
    }
    const std::int64_t sender = message->is_send ? program.rank : peer_of(schedule, *message, program.rank).rank;
    const std::vector<std::int64_t>& group = members.at(message->communicator);
    const auto place = static_cast<std::size_t>(std::find(group.begin(), group.end(), sender) - group.begin());
    groups.of_op[op] = {message->communicator, Kind::messages, colours.at(message->communicator)[place]};
  }
  for (const auto& [lane, first] : joined) require_one_order(schedule, program, lane);
  return groups;
}

}  // namespace stretto::cuda
