#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// A group of ranks that communicate, with their communicator and lane. Whoever communicates names a group; add_groups()
// makes most groups.
struct Group {
  std::uint32_t communicator = 0;  // index into Schedule::communicators
  LaneId lane = 0;
  Expr place = 0;         // place of the rank among the members
  std::int64_t size = 1;  // 1: there is no such group, and its other fields mean nothing
  bool exists() const { return size > 1; }
};

// How layers share a sequence among exchange.size · ring.size ranks: `exchange` swaps tokens for heads, `ring` sends
// keys and values round, or gathers them.
struct ContextKind {
  std::string suffix = {};  // suffix for names of objects that only this kind has (".a2a"); empty for the only kind
  Group exchange, ring;
  bool gathers = false;
  bool has_ring() const { return ring.exists() && !gathers; }
};
// Context parallelism: `size` ranks share a sequence.
struct ContextShape {
  std::int64_t size = 1;
  Expr place = 0;             // place of the rank: ring.place · exchange.size + exchange.place of every kind
  LaneId send = 0, recv = 0;  // lanes of messages round the ring
  std::vector<ContextKind> kinds = {{}};
};

struct Groups {
  Group dp;         // ranks that have equal parameters, inside an instance of the optimizer
  Group instances;  // ranks with equal shards, across instances
  Group gather;     // the ranks of `dp`, for gathers concurrent with reductions (ZeRO-2 and ZeRO-3)
  Group tp;
  ContextShape cp;
  // Where experts do not lie on the ranks as dense layers do: the ranks that share them, these for the counts of their
  // rows, whose messages do not wait for rows; those that gather tokens because they cut or share experts; the ranks
  // with equal experts, and these for gathers.
  Group ep, ep_counts, expert_tokens, edp, edp_gather;
  // the lane on which a shared expert computes; the lane of all computation unless it is concurrent with exchanges
  LaneId shared_expert = 0;
  // the ranks whose tokens a router's balance loss sums over, if the model has one
  Group sharing_tokens;
  Group amax;  // ranks that share amaxes of delayed scaling
};

// Adds a communicator along the given axes that have several ranks, or along dp where no axis has.
Group add_group(Schedule& schedule, const std::string& name, std::vector<Coord> along, LaneId lane);
// Adds the group of all ranks. It has the communicator of the only axis where there is one.
Group add_group_of_all(Schedule& schedule, LaneId lane);
// Adds the group of the ranks at two or more coordinates of an axis.
Group add_subset(Schedule& schedule, const std::string& name, Coord axis, std::vector<std::int64_t> at, LaneId lane);
// Returns a collective operation of the group.
Operation collective_operation(std::string name, const Group& group, CollectiveKind kind, std::int64_t elements,
                               Phase phase, std::vector<Access> accesses);
LaneId add_communication_lane(Schedule& schedule, const std::string& name);

// Collectives of all ranks, or of two stages, use the first communication lane, whatever its name.
constexpr LaneId kCommonLane = 1;

// Sets mesh and placement, and adds the compute lane, number 0, the groups and their lanes. The order of axes is
// Parallel::order; by default tp varies fastest and pp slowest: tensor-parallel groups are neighbours.
Groups add_groups(Schedule& schedule, const Scenario& scenario);

}  // namespace stretto
