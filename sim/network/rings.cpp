#include "sim/network/rings.hpp"

#include "base/error.hpp"
#include "model/schedule/process_group.hpp"

namespace stretto::sim {

Rings find_rings(const Schedule& schedule, const BoundStep& step, bool unfolded,
                 std::span<const std::int64_t> distance) {
  const std::vector<BoundProgram>& programs = step.programs;
  const Partners& partners = step.issued.partners;
  const std::int64_t endpoints = unfolded ? schedule.mesh.ranks() : static_cast<std::int64_t>(programs.size());
  if (endpoints > kMostEndpoints)
    throw input_error("simgrid: the fabric needs " + std::to_string(endpoints) + " endpoints" +
                      (unfolded ? " (ranks cannot be folded onto representatives when they share a backbone)" : "") +
                      ", at most " + std::to_string(kMostEndpoints) + " are supported; use the fluid network");
  const Folding& folding = step.folding;
  Rings rings;
  rings.endpoints = static_cast<std::uint32_t>(endpoints);
  rings.edges.resize(partners.instances.size() + partners.routes.size());
  for (std::int64_t i = 0; i < endpoints; ++i) {
    const std::int64_t rank = unfolded ? i : programs[static_cast<std::size_t>(i)].rank;
    const std::uint32_t stands_for_it = folding.index_of(rank);
    const auto edge_to = [&](std::int64_t peer) {
      return RingEdge{static_cast<std::uint32_t>(i),
                      unfolded ? static_cast<std::uint32_t>(peer) : folding.index_of(peer)};
    };
    for (std::uint32_t c = 0; c < schedule.communicators.size(); ++c)
      if (const std::uint32_t instance = partners.instance_of[stands_for_it][c]; instance != Partners::kNone)
        rings.edges[instance].push_back(
            edge_to(ring_member(schedule.mesh, schedule.communicators[c], rank, distance.empty() ? 1 : distance[c])));
    for (std::size_t r = 0; r < partners.routes.size(); ++r) {
      const MessageRoute& route = partners.routes[r];
      if (route.from == stands_for_it)
        rings.edges[partners.instances.size() + r].push_back(
            edge_to(ring_member(schedule.mesh, schedule.communicators[route.communicator], rank, route.distance)));
    }
  }
  // A down link carries its class's traffic only where each endpoint of a ring is reached once.
  for (const std::vector<RingEdge>& ring : rings.edges) {
    std::vector<bool> is_reached(static_cast<std::size_t>(endpoints), false);
    for (const RingEdge& edge : ring) {
      if (is_reached[edge.to])
        throw input_error(
            "simgrid: ranks that differ from others of their class cannot be folded; use the fluid network");
      is_reached[edge.to] = true;
    }
  }
  return rings;
}

}  // namespace stretto::sim
