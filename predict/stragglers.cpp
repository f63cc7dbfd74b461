#include "predict/stragglers.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <variant>

#include "model/schedule/work.hpp"

namespace stretto::predict {
namespace {

sim::OpCosts& own_costs(sim::Costs& costs, std::int64_t rank) {
  return costs.of_rank.try_emplace(rank, static_cast<const sim::OpCosts&>(costs)).first->second;
}

void slow_down(sim::CollectiveCost& cost, double factor) {
  cost.edge_bytes = std::llround(double(cost.edge_bytes) * factor);
  cost.movement.alone = std::llround(double(cost.movement.alone) * factor);
}

// Operations of ranks that are slowed already: two slow links of one collective do not make it twice as slow.
using Slowed = std::set<std::pair<std::int64_t, OpId>>;

// Slows the collectives of all groups of the rank, and its messages. A message has the costs of its receiver.
void slow_link(sim::Costs& costs, const Schedule& schedule, std::int64_t rank, double factor, Slowed& slowed) {
  const auto slow = [&](std::int64_t member, OpId id) {
    if (slowed.insert({member, id}).second) slow_down(own_costs(costs, member).collective[id], factor);
  };
  for (OpId id = 0; id < schedule.operations.size(); ++id) {
    const Work& work = schedule.operations[id].work;
    if (!is_communication(work)) continue;
    const Communicator& communicator = schedule.communicators[communicator_of(work)];
    const std::vector<std::int64_t> members = schedule.mesh.members(rank, communicator.axes);
    const std::int64_t count = std::ssize(members);
    if (count == 1) continue;
    for (std::int64_t place = 0; place < count; ++place) {
      const std::int64_t member = members[static_cast<std::size_t>(place)];
      if (const auto* message = std::get_if<PointToPoint>(&work)) {
        const std::int64_t offset = message->offset.eval(schedule.mesh.coordinates_of(member));
        const std::int64_t peer = members[static_cast<std::size_t>(((place + offset) % count + count) % count)];
        if (message->is_send || (member != rank && peer != rank)) continue;
      }
      slow(member, id);
    }
  }
}

}  // namespace

void set_apart(sim::Costs& costs, const Schedule& schedule, const Stragglers& stragglers) {
  for (const std::int64_t rank : stragglers.ranks)
    for (sim::Demand& demand : own_costs(costs, rank).compute)
      demand.alone = std::llround(double(demand.alone) * stragglers.compute);
  Slowed slowed;
  for (const std::int64_t rank : stragglers.links) slow_link(costs, schedule, rank, stragglers.link, slowed);
}

}  // namespace stretto::predict
