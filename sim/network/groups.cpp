#include "sim/network/groups.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace stretto::sim {
namespace {

bool spans(const Communicator& communicator, Coord axis) {
  return std::find(communicator.axes.begin(), communicator.axes.end(), axis) != communicator.axes.end();
}

// The first member names the instance.
std::int64_t first_member(const Schedule& schedule, const Communicator& communicator, std::int64_t rank) {
  Coordinates at = schedule.mesh.coordinates_of(rank);
  for (const Coord axis : communicator.axes) at[axis] = 0;
  return schedule.mesh.rank_of(at);
}

// The member after `rank` in the order of the group's coordinates (that of Mesh::members), around.
std::int64_t next_member(const Schedule& schedule, const Communicator& communicator, std::int64_t rank) {
  Coordinates at = schedule.mesh.coordinates_of(rank);
  const auto& axes = schedule.mesh.axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (!spans(communicator, axis->coord)) continue;
    if (++at[axis->coord] < axis->size) break;
    at[axis->coord] = 0;
  }
  return schedule.mesh.rank_of(at);
}

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
  result.of.assign(ranks.size(), std::vector<std::uint32_t>(schedule.communicators.size()));
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> index;
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c) {
      const Communicator& communicator = schedule.communicators[c];
      const auto [found, fresh] = index.try_emplace({c, first_member(schedule, communicator, ranks[i])},
                                                    static_cast<std::uint32_t>(result.groups.size()));
      if (fresh) {
        Group group;
        group.communicator = c;
        for (const Coord axis : communicator.axes) group.size *= schedule.mesh.size(axis);
        result.groups.push_back(group);
      }
      result.groups[found->second].members.push_back(i);
      result.of[i][c] = found->second;
    }
  }
  return result;
}

Rings find_rings(const Schedule& schedule, std::span<const std::int64_t> ranks, const Groups& groups, bool unfolded) {
  const std::int64_t endpoints = unfolded ? schedule.mesh.ranks() : static_cast<std::int64_t>(ranks.size());
  if (endpoints > kMostEndpoints)
    throw input_error("simgrid: the fabric needs " + std::to_string(endpoints) + " endpoints" +
                      (unfolded ? " (ranks cannot be folded onto representatives when they share a backbone)" : "") +
                      ", at most " + std::to_string(kMostEndpoints) + " are supported; use the fluid network");
  const Representatives representatives(schedule, ranks);
  Rings rings;
  rings.endpoints = static_cast<std::uint32_t>(endpoints);
  rings.edges.resize(groups.groups.size());
  for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c) {
    for (std::int64_t i = 0; i < endpoints; ++i) {
      const std::int64_t rank = unfolded ? i : ranks[i];
      const std::int64_t next = next_member(schedule, schedule.communicators[c], rank);
      const RingEdge edge = unfolded ? RingEdge{static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(next)}
                                     : RingEdge{static_cast<std::uint32_t>(i), representatives.of(next)};
      rings.edges[groups.of[representatives.of(rank)][c]].push_back(edge);
    }
  }
  return rings;
}

}  // namespace stretto::sim
