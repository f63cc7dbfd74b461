#pragma once
#include <functional>

#include "model/scenario.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/cost/features.hpp"
#include "sim/platform.hpp"

namespace stretto::sim {

// Returns the cost of a collective or message for its members: on a host, on a GPU that they share, or between GPUs
// with one rank each, by cluster.network. `on_core` converts work into the demand on a core of a host. Throws
// Error(input) as cost_schedule().
CollectiveCost communication_cost(const Schedule& schedule, const Operation& operation, const Platform& platform,
                                  const Cluster& cluster, const std::function<Demand(const WorkCost&)>& on_core);

}  // namespace stretto::sim
