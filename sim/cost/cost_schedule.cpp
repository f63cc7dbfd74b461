#include "sim/cost/cost_schedule.hpp"

#include <algorithm>
#include <optional>

#include "sim/cost/communication.hpp"
#include "sim/cost/evaluate.hpp"
#include "sim/cost/features.hpp"

namespace stretto::sim {

int cores_per_device(const Platform& platform, const Cluster& cluster) {
  return cluster.cores_per_device > 0 ? static_cast<int>(cluster.cores_per_device) : platform.cores;
}

Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed) {
  Costs costs;
  const std::optional<Gpu>& gpu = platform.gpu;
  costs.cores_per_device = gpu ? 1 : cores_per_device(platform, cluster);
  costs.link_bytes_per_s = cluster.link_GBps * 1e9;
  costs.op_overhead = from_us(platform.op_overhead_us.value);
  costs.wake = from_us(platform.wake_us.value);
  costs.timer_overshoot = from_us(platform.timer_overshoot_us.value);
  // Compute kernels of a GPU take turns: none runs beside another.
  if (!gpu)
    for (int a = 0; a < kDemandClasses; ++a)
      for (int b = 0; b < kDemandClasses; ++b) costs.slowdown[a][b] = platform.slowdown[a][b].value;
  costs.sleeps_for_cores = !gpu;

  const int threads = gpu ? 1 : schedule.placement.threads_per_rank;
  const bool oversubscribed = !gpu && schedule.placement.ranks_per_device * threads > costs.cores_per_device;
  const auto demand = [&](const WorkCost& cost) {
    const double turns = oversubscribed ? 1 + platform.oversubscribed[static_cast<int>(cost.cls)].value : 1.0;
    double us = 0;
    // A host has no epilogues: what it runs are the parts, one after the other. A GPU whose calibration has not met one
    // counts as such.
    const bool in_parts = !cost.parts.empty() && (!gpu || !platform.costs.contains(cost.key));
    if (!in_parts) us = cost_us(platform, cost);
    for (const WorkCost& part : cost.parts)
      if (in_parts) us += cost_us(platform, part);
    const Picoseconds alone = from_us(us * turns / core_speed);
    return Demand{std::max<Picoseconds>(1, alone), threads, cost.cls};
  };
  for (const Operation& operation : schedule.operations) {
    const bool communicates = is_communication(operation.work);
    costs.compute.push_back(communicates ? Demand{} : demand(work_cost(schedule, operation)));
    costs.collective.push_back(communicates ? communication_cost(schedule, operation, platform, cluster, demand)
                                            : CollectiveCost{});
  }
  return costs;
}

}  // namespace stretto::sim
