#include "sim/network/groups.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

// Which simulated rank stands for a rank. Folding keeps, on every axis, the first coordinates: as many as divide it.
class Representatives {
 public:
  Representatives(const Schedule& schedule, std::span<const std::int64_t> ranks) : mesh_(schedule.mesh) {
    std::array<std::set<std::int64_t>, kCoordCount> seen;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      index_[ranks[i]] = static_cast<std::uint32_t>(i);
      const Coordinates at = mesh_.coordinates_of(ranks[i]);
      for (int c = 0; c < kCoordCount; ++c) seen[c].insert(at.value[c]);
    }
    std::size_t product = 1;
    bool regular = true;
    for (const MeshAxis& axis : mesh_.axes()) {
      const auto& values = seen[static_cast<int>(axis.coord)];
      const auto kept = static_cast<std::int64_t>(values.size());
      regular = regular && kept > 0 && *values.rbegin() == kept - 1 && axis.size % kept == 0;
      kept_[static_cast<int>(axis.coord)] = kept;
      product *= values.size();
    }
    if (!regular || product != ranks.size())
      throw runtime_failure("simgrid: the simulated ranks do not tile the mesh, so the fabric cannot be folded");
  }

  std::uint32_t of(std::int64_t rank) const {
    Coordinates at = mesh_.coordinates_of(rank);
    for (const MeshAxis& axis : mesh_.axes()) at[axis.coord] %= kept_[static_cast<int>(axis.coord)];
    return index_.at(mesh_.rank_of(at));
  }

 private:
  const Mesh& mesh_;
  std::array<std::int64_t, kCoordCount> kept_{};
  std::map<std::int64_t, std::uint32_t> index_;
};

}  // namespace

Groups find_groups(const Schedule& schedule, std::span<const std::int64_t> ranks) {
  Groups result;
  result.of.assign(ranks.size(), std::vector<std::uint32_t>(schedule.communicators.size(), Groups::kNone));
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> index;
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c) {
      const std::vector<std::int64_t> members = members_of(schedule, schedule.communicators[c], ranks[i]);
      if (members.empty()) continue;
      // The first member names the instance.
      const auto [found, fresh] =
          index.try_emplace({c, members.front()}, static_cast<std::uint32_t>(result.groups.size()));
      if (fresh) result.groups.push_back({c, static_cast<std::int64_t>(members.size()), {}});
      result.groups[found->second].members.push_back(i);
      result.of[i][c] = found->second;
    }
  }
  return result;
}

MessageLinks find_links(const Schedule& schedule, std::span<const BoundProgram> programs) {
  MessageLinks result;
  std::vector<std::int64_t> ranks;
  for (const BoundProgram& program : programs) ranks.push_back(program.rank);
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::int64_t>, std::uint32_t> index;
  for (std::uint32_t p = 0; p < programs.size(); ++p) {
    std::vector<std::uint32_t>& of = result.of.emplace_back(schedule.operations.size(), MessageLinks::kNone);
    for (const BoundOp& op : programs[p].ops) {
      const auto* message = std::get_if<PointToPoint>(&schedule.operations[op.op].work);
      if (!message || of[op.op] != MessageLinks::kNone) continue;
      const Peer other = peer_of(schedule, *message, ranks[p]);
      const auto found = std::lower_bound(ranks.begin(), ranks.end(), representative_of(schedule, ranks, other.rank));
      const auto peer = static_cast<std::uint32_t>(found - ranks.begin());
      const MessageLink link{message->communicator, message->is_send ? p : peer, message->is_send ? peer : p,
                             other.distance};
      const auto [at, fresh] = index.try_emplace({link.communicator, link.from, link.to, link.distance},
                                                 static_cast<std::uint32_t>(result.links.size()));
      if (fresh) result.links.push_back(link);
      of[op.op] = at->second;
    }
  }
  return result;
}

Rings find_rings(const Schedule& schedule, std::span<const std::int64_t> ranks, const Groups& groups,
                 const MessageLinks& links, bool unfolded) {
  const std::int64_t endpoints = unfolded ? schedule.mesh.ranks() : static_cast<std::int64_t>(ranks.size());
  if (endpoints > kMostEndpoints)
    throw input_error("simgrid: the fabric needs " + std::to_string(endpoints) + " endpoints" +
                      (unfolded ? " (ranks cannot be folded onto representatives when they share a backbone)" : "") +
                      ", at most " + std::to_string(kMostEndpoints) + " are supported; use the fluid network");
  const Representatives representatives(schedule, ranks);
  Rings rings;
  rings.endpoints = static_cast<std::uint32_t>(endpoints);
  rings.edges.resize(groups.groups.size() + links.links.size());
  for (std::int64_t i = 0; i < endpoints; ++i) {
    const std::int64_t rank = unfolded ? i : ranks[i];
    const std::uint32_t stands_for_it = representatives.of(rank);
    const auto edge_to = [&](std::int64_t peer) {
      return RingEdge{static_cast<std::uint32_t>(i),
                      unfolded ? static_cast<std::uint32_t>(peer) : representatives.of(peer)};
    };
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c)
      if (groups.of[stands_for_it][c] != Groups::kNone)
        rings.edges[groups.of[stands_for_it][c]].push_back(
            edge_to(member_after(schedule, schedule.communicators[c], rank, 1)));
    for (std::size_t l = 0; l < links.links.size(); ++l) {
      const MessageLink& link = links.links[l];
      if (link.from == stands_for_it)
        rings.edges[groups.groups.size() + l].push_back(
            edge_to(member_after(schedule, schedule.communicators[link.communicator], rank, link.distance)));
    }
  }
  return rings;
}

}  // namespace stretto::sim
