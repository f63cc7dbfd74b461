#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bound_step.hpp"

namespace stretto::sim {

// A flow from one endpoint's up link to another's down link. Endpoints may be equal: see Rings.
struct RingEdge {
  std::uint32_t from = 0, to = 0;
};

// The flows that a transfer makes on the fabric.
//
// Folded: endpoints are the simulated ranks, and a flow to a rank that is folded away goes to the down link of its
// representative. That is exact while links belong to one rank each: a simulated rank's down link then carries its
// class's traffic, by symmetry at equal times.
//
// Unfolded (a link that all share): endpoints are all ranks of the mesh, and a transfer of a communicator's instance
// starts the flows of all instances that it stands for.
struct Rings {
  std::uint32_t endpoints = 0;
  std::vector<std::vector<RingEdge>> edges;  // [Partners::instances, then Partners::routes]
};

// The most endpoints on a SimGrid fabric: SimGrid 3.32 takes about 1 µs + 5 ns × (flows in flight) per flow.
constexpr std::int64_t kMostEndpoints = 4096;

// Finds the rings of a step. `distance` is Costs::ring_distance. Throws Error(input) when the fabric would need more
// than kMostEndpoints.
Rings find_rings(const Schedule& schedule, const BoundStep& step, bool unfolded,
                 std::span<const std::int64_t> distance = {});

}  // namespace stretto::sim
