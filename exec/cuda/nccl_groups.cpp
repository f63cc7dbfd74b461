#include "exec/cuda/nccl_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "model/schedule/process_group.hpp"

namespace stretto::cuda {
namespace {

const PointToPoint* message_of(const Schedule& schedule, OpId op) {
  return std::get_if<PointToPoint>(&schedule.operations[op].work);
}

// Returns [member] the smallest colour that no earlier member has which it sends to or receives from.
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

// Returns [lane] the first communicator of messages that are issued in groups.
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

// Returns the communicators of a rank's messages to or from a peer on a lane, in the order of the calls.
std::vector<std::uint32_t> words(const Schedule& schedule, const BoundProgram& program, LaneId lane, std::int64_t peer,
                                 bool is_send) {
  std::vector<std::uint32_t> all;
  const std::vector<std::uint32_t>& ops = program.lanes[lane];
  for (std::size_t i = 0; i < ops.size();) {
    std::size_t end = i + 1;
    while (end < ops.size() && program.ops[ops[end]].joined) ++end;
    if (message_of(schedule, program.ops[ops[i]].op) == nullptr) {  // a collective on the lane
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

void require_one_order(const VerifiedSchedule& verified, const BoundProgram& program, LaneId lane) {
  const Schedule& schedule = verified.schedule;
  std::set<std::int64_t> peers;
  for (const std::uint32_t op : program.lanes[lane])
    if (const PointToPoint* message = message_of(schedule, program.ops[op].op))
      peers.insert(peer_of(schedule, *message, program.rank).rank);
  for (const std::int64_t peer : peers) {
    const std::vector<std::uint32_t> sent = words(schedule, program, lane, peer, true);
    // With one communicator between them the order is that of the messages.
    if (sent.empty() || std::set(sent.begin(), sent.end()).size() == 1) continue;
    if (sent != words(schedule, program_of(schedule, verified, peer), lane, program.rank, false))
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

namespace {

constexpr int kMostCtas = 64;  // maximum of a communicator in NCCL 2.28 (MAXCHANNELS)

// Finds the groups of a rank's communication.
class Groups {
 public:
  Groups(const Schedule& schedule, std::int64_t rank)
      : schedule_(schedule), rank_(rank), joined_(joined_lanes(schedule)) {}

  const std::vector<std::int64_t>& members(std::uint32_t communicator) {
    const auto [at, fresh] = members_.try_emplace(communicator);
    if (fresh) at->second = members_of(schedule_, schedule_.communicators[communicator], rank_);
    return at->second;
  }
  const std::vector<std::uint8_t>& colours(std::uint32_t communicator) {
    const auto [at, fresh] = colours_.try_emplace(communicator);
    if (fresh) at->second = colours_of(schedule_, communicator, members(communicator));
    return at->second;
  }
  // Returns the group of an operation that communicates. The rank must be a member.
  NcclGroup of(OpId op) {
    const Operation& operation = schedule_.operations[op];
    if (const auto* collective = std::get_if<Collective>(&operation.work))
      return {collective->communicator, NcclGroup::Kind::collectives, 0};
    const PointToPoint& message = *message_of(schedule_, op);
    if (const auto lane = joined_.find(operation.lane); lane != joined_.end())
      return {lane->second, NcclGroup::Kind::joined, 0};
    const std::int64_t sender = message.is_send ? rank_ : peer_of(schedule_, message, rank_).rank;
    const std::vector<std::int64_t>& group = members(message.communicator);
    const auto place = static_cast<std::size_t>(std::find(group.begin(), group.end(), sender) - group.begin());
    return {message.communicator, NcclGroup::Kind::messages, colours(message.communicator)[place]};
  }
  std::set<NcclGroup> all() {
    std::set<NcclGroup> groups;
    for (OpId op = 0; op < schedule_.operations.size(); ++op) {
      const Operation& operation = schedule_.operations[op];
      if (!is_communication(operation.work)) continue;
      const std::uint32_t index = communicator_of(operation.work);
      if (process_group_of(schedule_.mesh, schedule_.communicators[index], rank_).size < 2) continue;
      if (std::holds_alternative<Collective>(operation.work)) {
        groups.insert({index, NcclGroup::Kind::collectives, 0});
      } else if (const auto lane = joined_.find(operation.lane); lane != joined_.end()) {
        groups.insert({lane->second, NcclGroup::Kind::joined, 0});
      } else {
        for (const std::uint8_t colour : colours(index)) groups.insert({index, NcclGroup::Kind::messages, colour});
      }
    }
    return groups;
  }

 private:
  const Schedule& schedule_;
  const std::int64_t rank_;
  const std::map<LaneId, std::uint32_t> joined_;
  std::map<std::uint32_t, std::vector<std::int64_t>> members_;  // [communicator]
  std::map<std::uint32_t, std::vector<std::uint8_t>> colours_;  // [communicator of messages]
};

}  // namespace

std::set<NcclGroup> nccl_groups_of(const Schedule& schedule, std::int64_t rank) { return Groups(schedule, rank).all(); }

std::map<NcclGroup, NcclPeers> nccl_peers_of(const Schedule& schedule, std::int64_t rank) {
  Groups groups(schedule, rank);
  std::map<NcclGroup, NcclPeers> peers;
  // A stage calls only some of the messages.
  std::set<OpId> called;
  for (const Call& call : schedule.programs[schedule.role_of(schedule.mesh.coordinates_of(rank))].order)
    for (std::uint32_t i = call.first; i < call.first + call.count; ++i)
      called.insert(schedule.blocks[call.block].ops[i]);
  for (const OpId op : called) {
    const PointToPoint* message = message_of(schedule, op);
    if (message == nullptr ||
        process_group_of(schedule.mesh, schedule.communicators[message->communicator], rank).size < 2)
      continue;
    NcclPeers& of_group = peers[groups.of(op)];
    (message->is_send ? of_group.to : of_group.from).insert(peer_of(schedule, *message, rank).rank);
  }
  return peers;
}

int ctas_of_others(const Schedule& schedule, const std::set<NcclGroup>& groups, int sms) {
  int given = 0, others = 0;
  for (const NcclGroup& group : groups) {
    const Communicator& communicator = schedule.communicators[group.communicator];
    if (communicator.engine == CommEngine::sm)
      given += group.kind == NcclGroup::Kind::collectives
                   ? communicator.channels
                   : static_cast<int>(std::bit_ceil(static_cast<unsigned>(communicator.channels)));
    else
      ++others;
  }
  return std::max(1, (sms / 2 - given) / std::max(1, others));
}

int ctas_of(const Schedule& schedule, const NcclGroup& group, int of_others) {
  const Communicator& communicator = schedule.communicators[group.communicator];
  if (communicator.engine == CommEngine::sm) return communicator.channels;
  return std::min(kMostCtas, group.kind == NcclGroup::Kind::collectives
                                 ? of_others
                                 : static_cast<int>(std::bit_floor(static_cast<unsigned>(of_others))));
}

NcclGroups find_nccl_groups(const Schedule& schedule, const BoundProgram& program) {
  Groups of_rank(schedule, program.rank);
  NcclGroups groups{of_rank.all(), std::vector<NcclGroup>(program.ops.size())};
  for (std::size_t op = 0; op < program.ops.size(); ++op)
    if (is_communication(program.work_of(op))) groups.of_op[op] = of_rank.of(program.ops[op].op);
  return groups;
}

void require_one_order(const VerifiedSchedule& verified, const BoundProgram& program) {
  for (const auto& [lane, first] : joined_lanes(verified.schedule)) require_one_order(verified, program, lane);
}

}  // namespace stretto::cuda
