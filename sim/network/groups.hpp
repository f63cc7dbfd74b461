#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::sim {

// One instance of a communicator that has simulated members.
struct Group {
  std::uint32_t communicator = 0;
  std::int64_t size = 1;               // all members, simulated or folded away
  std::vector<std::uint32_t> members;  // those simulated: indices into `ranks`, ascending
};

struct Groups {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<Group> groups;
  std::vector<std::vector<std::uint32_t>>
      of;  // [index into `ranks`][communicator] → index into groups; kNone: not a member
};

// `ranks` are the simulated ranks (representative_ranks), ascending.
Groups find_groups(const Schedule& schedule, std::span<const std::int64_t> ranks);

// From one simulated rank to another on one communicator: where messages meet. Ranks are indices into `programs`.
struct MessageLink {
  std::uint32_t communicator = 0, from = 0, to = 0;
  std::int64_t distance = 1;  // places in the ring of the communicator's members; tells apart what is folded together
};
struct MessageLinks {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<MessageLink> links;
  std::vector<std::vector<std::uint32_t>> of;  // [index into `programs`][OpId] → index into links; kNone: no message
};
MessageLinks find_links(const Schedule& schedule, std::span<const BoundProgram> programs);

// A flow from one endpoint's up link to another's down link. Endpoints may be equal: see below.
struct RingEdge {
  std::uint32_t from = 0, to = 0;
};

// Which flows a transfer of each group makes on the fabric.
//
// Folded: endpoints are the simulated ranks, and a flow to a rank that is folded away goes to the down link of the rank
// that stands for it. That is exact while links belong to one rank each: a simulated rank's down link then carries what
// its class receives, by symmetry at the same times.
//
// Unfolded (a link that all share): endpoints are all ranks of the mesh, and a transfer of a group starts the flows of
// all groups that it stands for.
struct Rings {
  std::uint32_t endpoints = 0;
  std::vector<std::vector<RingEdge>> edges;  // [group], then [groups + link]
};

// At most this many endpoints on a SimGrid fabric: SimGrid 3.32 takes about 1 µs + 5 ns × (flows in flight) per flow.
constexpr std::int64_t kMostEndpoints = 4096;

// Throws Error(input) when the fabric would need more than kMostEndpoints.
Rings find_rings(const Schedule& schedule, std::span<const std::int64_t> ranks, const Groups& groups,
                 const MessageLinks& links, bool unfolded);

}  // namespace stretto::sim
