#include "model/schedule/partners.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

#include "model/schedule/folding.hpp"
#include "model/schedule/process_group.hpp"

namespace stretto {

std::vector<std::int64_t> members_of(const Schedule& schedule, const Communicator& communicator, std::int64_t rank) {
  if (communicator.subset.empty()) return schedule.mesh.members(rank, communicator.axes);
  const std::vector<std::int64_t> all = schedule.mesh.members(rank, communicator.axes);
  std::vector<std::int64_t> members;
  for (const std::int64_t coordinate : communicator.subset)
    members.push_back(all[static_cast<std::size_t>(coordinate)]);
  if (std::find(members.begin(), members.end(), rank) == members.end()) members.clear();
  return members;
}

Peer peer_of(const Schedule& schedule, const PointToPoint& message, std::int64_t rank) {
  const Communicator& communicator = schedule.communicators[message.communicator];
  const std::int64_t offset = message.offset.eval(schedule.mesh.coordinates_of(rank));
  const std::int64_t distance = (message.is_send ? offset : -offset) % communicator.size;
  return {ring_member(schedule.mesh, communicator, rank, offset),
          distance < 0 ? distance + communicator.size : distance};
}

Partners find_partners(const Schedule& schedule, std::span<const BoundProgram> programs, const Folding& folding) {
  Partners result;
  // the lowest member names the instance
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known_instances;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::int64_t>, std::uint32_t> known_routes;
  for (std::uint32_t p = 0; p < programs.size(); ++p) {
    const BoundProgram& program = programs[p];
    auto& instance_of = result.instance_of.emplace_back(schedule.communicators.size(), Partners::kNone);
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c) {
      const Communicator& communicator = schedule.communicators[c];
      const ProcessGroup group = process_group_of(schedule.mesh, communicator, program.rank);
      if (group.size == 0) continue;
      const auto [at, is_new] = known_instances.try_emplace({c, folding.lowest_in_group(communicator, program.rank)},
                                                            static_cast<std::uint32_t>(result.instances.size()));
      if (is_new) result.instances.push_back({c, group.size, {}});
      result.instances[at->second].members.push_back(p);
      instance_of[c] = at->second;
    }
    auto& route_of = result.route_of.emplace_back(schedule.operations.size(), Partners::kNone);
    std::vector<bool> is_issued(schedule.blocks.size(), false);
    for (const Call& call : schedule.programs[program.role].order) {
      if (is_issued[call.block]) continue;
      is_issued[call.block] = true;
      for (const OpId id : schedule.blocks[call.block].ops) {
        const auto* message = std::get_if<PointToPoint>(&program.works[id]);
        if (!message || route_of[id] != Partners::kNone || instance_of[message->communicator] == Partners::kNone)
          continue;
        const Peer other = peer_of(schedule, *message, program.rank);
        const std::uint32_t peer = folding.index_of(other.rank);
        assert(peer < programs.size() && programs[peer].rank == folding.of(other.rank));
        const MessageRoute route{message->communicator, message->is_send ? p : peer, message->is_send ? peer : p,
                                 other.distance, programs[peer].rank == other.rank};
        const auto [at, is_new] = known_routes.try_emplace({route.communicator, route.from, route.to, route.distance},
                                                           static_cast<std::uint32_t>(result.routes.size()));
        if (is_new) result.routes.push_back(route);
        route_of[id] = at->second;
      }
    }
  }
  return result;
}

}  // namespace stretto
