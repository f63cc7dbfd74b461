#include "sim/cost/cost_schedule.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "model/ring.hpp"
#include "model/schedule/residency.hpp"
#include "sim/cost/evaluate.hpp"
#include "sim/cost/features.hpp"

namespace stretto::sim {
namespace {

double cost_us(const Platform& platform, const WorkCost& cost) {
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
  return evaluate_us(fit->second, cost.features);
}

Dtype dtype_of(const Schedule& schedule, const Operation& operation) {
  return schedule.storages[schedule.tensors[operation.accesses.front().view.tensor].places.front().storage].dtype;
}

// Communication on a GPU, one of `at_once` of its kind that run there at the same time.
struct OnGpu {
  CommEngine engine = CommEngine::sm;
  double blocks = 0;  // of each kernel
  double at_once = 1;
};
OnGpu on_gpu(const Communicator& communicator, const Gpu& gpu, const Placement& placement) {
  return {communicator.engine,
          static_cast<double>(communicator.engine == CommEngine::sm ? communicator.channels : gpu.ctas),
          static_cast<double>(std::min(communicator.size, placement.ranks_per_device))};
}

// A member's part of a communication on a GPU that its ranks share, `phases` times: a kernel, or a copy. It lasts as
// long as moving the bytes takes, at least as long as the link that it stands for would, whichever is longer; while a
// kernel has moved its bytes and waits for the link it slows compute by its presence alone.
void cost_on_gpu(CollectiveCost& collective, const WorkCost& movement, const Platform& platform, const Cluster& cluster,
                 const OnGpu& on) {
  const Gpu& gpu = *platform.gpu;
  const double moving_us = std::max(1e-6, cost_us(platform, movement));
  const double wire_us =
      (to_us(collective.latency) +
       (cluster.link_GBps > 0 ? static_cast<double>(collective.edge_bytes) / cluster.link_GBps * 1e-3 : 0)) /
      collective.phases;
  // It ends with the link: that members start late, for want of an event, is in the link's overshoot as measured.
  const double us = std::max(moving_us, wire_us - 2 * platform.wake_us.value), moving_share = moving_us / us;
  collective.movement = {std::max<Picoseconds>(1, from_us(us)), 0, movement.cls};
  Beside& beside = collective.beside.emplace();
  const bool copies = on.engine == CommEngine::copy_engine;
  for (std::size_t c = 0; c < kDemandClasses; ++c) {
    // Curves are over all blocks or copies on the device; what the members do at the same time adds up.
    const double at = copies ? on.at_once : on.blocks * on.at_once;
    const double moving = value_of(copies ? gpu.beside_copying[c] : gpu.beside_moving[c], at) / on.at_once,
                 waiting = copies ? 0 : value_of(gpu.beside_waiting[c], at) / on.at_once,
                 slowed = value_of(copies ? gpu.copying_beside[c] : gpu.moving_beside[c], at);
    beside.slows[c] = moving_share * moving + (1 - moving_share) * waiting;
    // Time that it would have waited anyway costs nothing.
    beside.slowed[c] = std::max(0.0, moving_share * (1 + slowed) - 1);
  }
}

}  // namespace

Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed) {
  Costs costs;
  const std::optional<Gpu>& gpu = platform.gpu;
  costs.cores_per_device = gpu                            ? 1
                           : cluster.cores_per_device > 0 ? static_cast<int>(cluster.cores_per_device)
                                                          : platform.cores;
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
  auto demand = [&](const WorkCost& cost) {
    const double turns = oversubscribed ? 1 + platform.oversubscribed[static_cast<int>(cost.cls)].value : 1.0;
    double us = 0;
    // A host has no epilogues: what it runs are the parts, one after the other.
    if (gpu || cost.parts.empty()) us = cost_us(platform, cost);
    for (const WorkCost& part : cost.parts)
      if (!gpu) us += cost_us(platform, part);
    const Picoseconds alone = from_us(us * turns / core_speed);
    return Demand{std::max<Picoseconds>(1, alone), threads, cost.cls};
  };
  for (const Operation& operation : schedule.operations) {
    Demand compute;
    CollectiveCost collective;
    OnGpu on;
    if (is_communication(operation.work)) {
      const Communicator& communicator = schedule.communicators[communicator_of(operation.work)];
      if (gpu) on = on_gpu(communicator, *gpu, schedule.placement);
      collective.cores = gpu ? 0 : resident_cores(communicator);
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
      const WorkCost movement = movement_cost(*c, dtype, members, in_place);
      if (gpu) {
        cost_on_gpu(collective, on_blocks(movement, on.blocks, on.at_once), platform, cluster, on);
      } else {
        collective.movement = demand(movement);
        collective.movement.cores = collective.cores > 0 ? 0 : 1;
      }
    } else if (const auto* message = std::get_if<PointToPoint>(&operation.work)) {
      const Dtype dtype = dtype_of(schedule, operation);
      collective.latency = from_us(cluster.link_latency_us);
      collective.edge_bytes = message->elements * bytes_of(dtype);
      if (!message->is_send) {
        // A kernel at a time between two stages; copies are of all ranks of a ring.
        const bool copies = on.engine == CommEngine::copy_engine;
        if (!copies) on.at_once = 1;
        const WorkCost movement = movement_cost(*message, dtype);
        if (gpu) {
          cost_on_gpu(collective,
                      copies ? copy_cost(collective.edge_bytes, on.at_once) : on_blocks(movement, on.blocks, 1),
                      platform, cluster, on);
        } else {
          collective.movement = demand(movement);
          collective.movement.cores = collective.cores > 0 ? 0 : 1;
        }
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
