#include "sim/cost/cost_schedule.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "model/ring.hpp"
#include "model/schedule/residency.hpp"
#include "sim/cost/features.hpp"

namespace stretto::sim {
namespace {

double evaluate_us(const Platform& platform, const WorkCost& cost) {
  const auto fit = platform.costs.find(cost.key);
  if (fit == platform.costs.end()) {
    // Keys end in the type that was computed in.
    const std::string operation = cost.key.substr(0, cost.key.rfind('_') + 1);
    for (const auto& [key, other] : platform.costs)
      if (key.rfind('_') + 1 == operation.size() && key.starts_with(operation))
        throw input_error("platform " + platform.name + " has no cost \"" + cost.key + "\", only \"" + key +
                          "\": it was calibrated for another [training] precision");
    throw input_error("platform " + platform.name + " has no cost \"" + cost.key +
                      "\"; run stretto calibrate to measure it");
  }
  if (fit->second.coefficients.size() != cost.features.size())
    throw input_error("platform " + platform.name + ", cost \"" + cost.key + "\": expected " +
                      std::to_string(cost.features.size()) + " coefficients, got " +
                      std::to_string(fit->second.coefficients.size()));
  double us = 0;
  for (std::size_t i = 0; i < cost.features.size(); ++i) us += fit->second.coefficients[i] * cost.features[i];
  return us;
}

Dtype dtype_of(const Schedule& schedule, const Operation& operation) {
  return schedule.storages[schedule.tensors[operation.accesses.front().view.tensor].places.front().storage].dtype;
}

}  // namespace

Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed) {
  Costs costs;
  costs.cores_per_device = cluster.cores_per_device > 0 ? static_cast<int>(cluster.cores_per_device) : platform.cores;
  costs.link_bytes_per_s = cluster.link_GBps * 1e9;
  costs.op_overhead = from_us(platform.op_overhead_us.value);
  costs.wake = from_us(platform.wake_us.value);
  costs.timer_overshoot = from_us(platform.timer_overshoot_us.value);
  for (int a = 0; a < kDemandClasses; ++a)
    for (int b = 0; b < kDemandClasses; ++b) costs.slowdown[a][b] = platform.slowdown[a][b].value;

  const int threads = schedule.placement.threads_per_rank;
  const bool oversubscribed = schedule.placement.ranks_per_device * threads > costs.cores_per_device;
  auto demand = [&](const WorkCost& cost) {
    const double turns = oversubscribed ? 1 + platform.oversubscribed[static_cast<int>(cost.cls)].value : 1.0;
    const Picoseconds alone = from_us(evaluate_us(platform, cost) * turns / core_speed);
    return Demand{std::max<Picoseconds>(1, alone), threads, cost.cls};
  };
  for (const Operation& operation : schedule.operations) {
    Demand compute;
    CollectiveCost collective;
    if (is_communication(operation.work)) {
      const Communicator& communicator = schedule.communicators[communicator_of(operation.work)];
      collective.cores = resident_cores(communicator);
      if (collective.cores > 0) collective.most_bytes_per_s = collective.cores * cluster.channel_GBps * 1e9;
    }
    if (const auto* c = std::get_if<Collective>(&operation.work)) {
      const std::int64_t members = schedule.communicators[c->communicator].size;
      const Dtype dtype = dtype_of(schedule, operation);
      const bool in_place = operation.accesses.front().view.tensor == operation.accesses.back().view.tensor;
      const RingCost ring = ring_cost(c->kind, dtype, c->elements, members);
      collective.latency = from_us(double(ring.steps) * cluster.link_latency_us);
      collective.edge_bytes = ring.edge_bytes;
      collective.phases = c->kind == CollectiveKind::all_reduce ? 2 : 1;
      collective.movement = demand(movement_cost(*c, dtype, members, in_place));
      collective.movement.cores = collective.cores > 0 ? 0 : 1;
    } else if (const auto* message = std::get_if<PointToPoint>(&operation.work)) {
      const Dtype dtype = dtype_of(schedule, operation);
      collective.latency = from_us(cluster.link_latency_us);
      collective.edge_bytes = message->elements * bytes_of(dtype);
      if (!message->is_send) {
        collective.movement = demand(movement_cost(*message, dtype));
        collective.movement.cores = collective.cores > 0 ? 0 : 1;
      }
    } else {
      compute = demand(work_cost(schedule, operation));
    }
    costs.compute.push_back(compute);
    costs.collective.push_back(collective);
  }
  return costs;
}

}  // namespace stretto::sim
