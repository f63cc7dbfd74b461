#include "sim/cost/communication.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.hpp"
#include "model/ring.hpp"
#include "model/schedule/residency.hpp"
#include "sim/cost/evaluate.hpp"

namespace stretto::sim {
namespace {

Dtype dtype_of(const Schedule& schedule, const Operation& operation) {
  return schedule.dtype_of(operation.accesses.front().view);
}

// A communication on a GPU, where `at_once` of its kind are concurrent.
struct OnGpu {
  bool copies = false;  // it runs on a copy engine; otherwise it is a kernel
  double blocks = 0;    // thread blocks of each kernel
  double at_once = 1;
};

// Returns the interference. `moving_share` is the share of its time in which it moves bytes and does not wait for a
// link.
KernelInterference interference_on(const Gpu& gpu, const OnGpu& on, double moving_share) {
  KernelInterference interference;
  for (std::size_t c = 0; c < kDemandClasses; ++c) {
    // Curves are functions of all blocks or copies on the device; the effects of concurrent members add up.
    const double at = on.copies ? on.at_once : on.blocks * on.at_once;
    const double moving = value_of(on.copies ? gpu.beside_copying[c] : gpu.beside_moving[c], at) / on.at_once,
                 waiting = on.copies ? 0 : value_of(gpu.beside_waiting[c], at) / on.at_once,
                 slowed = value_of(on.copies ? gpu.copying_beside[c] : gpu.moving_beside[c], at);
    interference.slows[c] = moving_share * moving + (1 - moving_share) * waiting;
    // A delay within time that it would have waited anyway costs nothing.
    interference.slowed[c] = std::max(0.0, moving_share * (1 + slowed) - 1);
  }
  return interference;
}

Demand for_us(double us, const WorkCost& cost) { return {std::max<Picoseconds>(1, from_us(us)), 0, cost.cls}; }

// Sets the cost of a member's share on a GPU that it shares with the others, in `phases` phases: a kernel, or a copy.
// It lasts as long as moving the bytes takes, or as long as the link that it stands for would, whichever is longer. A
// kernel that has moved its bytes and waits for the link still slows compute by its presence.
void share_gpu(CollectiveCost& collective, const WorkCost& movement, const Platform& platform, const Cluster& cluster,
               const OnGpu& on) {
  const double moving_us = std::max(1e-6, cost_us(platform, movement));
  const double wire_us =
      (to_us(collective.latency) + static_cast<double>(collective.edge_bytes) / cluster.link_GBps * 1e-3) /
      collective.phases;
  // The kernel ends with the link. Members start late because of a missing event; the measured overshoot of the link
  // includes this.
  const double us = std::max(moving_us, wire_us - 2 * platform.wake_us.value);
  collective.movement = for_us(us, movement);
  collective.interference = interference_on(*platform.gpu, on, moving_us / us);
}

// Returns the cost of an NCCL kernel, whose time was measured as a whole: there is no separate link time.
CollectiveCost by_nccl(const WorkCost& cost, const Platform& platform, const OnGpu& on) {
  CollectiveCost collective;
  collective.movement = for_us(std::max(1e-6, cost_us(platform, cost)), cost);
  collective.interference = interference_on(*platform.gpu, on, 1);
  return collective;
}

}  // namespace

CollectiveCost communication_cost(const Schedule& schedule, const Operation& operation, const Platform& platform,
                                  const Cluster& cluster, const std::function<Demand(const WorkCost&)>& on_core) {
  const std::optional<Gpu>& gpu = platform.gpu;
  const Communicator& communicator = schedule.communicators[communicator_of(operation.work)];
  const auto* c = std::get_if<Collective>(&operation.work);
  const auto* message = std::get_if<PointToPoint>(&operation.work);
  const Dtype dtype = dtype_of(schedule, operation);
  const bool is_kernel = communicator.engine == CommEngine::sm;
  OnGpu on;
  if (gpu) on.blocks = is_kernel ? communicator.channels : gpu->ctas;

  if (cluster.network == Network::nccl) {
    if (!gpu)
      throw input_error("platform " + platform.name +
                        " is a host; expected one of GPUs with [cluster] network = \"nccl\"");
    const std::optional<int> channels = is_kernel ? std::optional(communicator.channels) : std::nullopt;
    if (communicator.size == 1 || (message && message->is_send)) return {};  // the receiver moves the message
    // NCCL has no messages by copy engine. Its collectives on copy engines are assumed to last as long as kernels do.
    on.copies = c && communicator.engine == CommEngine::copy_engine;
    return by_nccl(c ? nccl_cost(*c, dtype, communicator.size, channels) : nccl_cost(*message, dtype, channels),
                   platform, on);
  }

  CollectiveCost collective;
  collective.cores = gpu ? 0 : resident_cores(communicator);
  if (collective.cores > 0) collective.most_bytes_per_s = collective.cores * cluster.channel_GBps * 1e9;
  WorkCost movement;
  if (c) {
    const bool in_place = operation.accesses.front().view.tensor == operation.accesses.back().view.tensor;
    const RingCost ring = ring_cost(c->kind, dtype, c->elements, communicator.size);
    collective.latency = from_us(double(ring.steps) * cluster.link_latency_us);
    collective.edge_bytes = ring.edge_bytes;
    collective.phases = rule_of(c->kind).phases;
    movement = movement_cost(*c, dtype, communicator.size, in_place);
  } else {
    collective.latency = from_us(cluster.link_latency_us);
    collective.edge_bytes = message->elements * bytes_of(dtype);
    if (message->is_send) return collective;  // the receiver moves the message
    movement = movement_cost(*message, dtype);
  }
  if (!gpu) {
    collective.movement = on_core(movement);
    collective.movement.cores = collective.cores > 0 ? 0 : 1;
    return collective;
  }
  // All members of a collective and all messages of a ring are concurrent; stages send to one another one at a time.
  on.copies = message && communicator.engine == CommEngine::copy_engine;
  if (c || on.copies)
    on.at_once = static_cast<double>(std::min(communicator.size, schedule.placement.ranks_per_device));
  share_gpu(collective,
            on.copies ? copy_cost(collective.edge_bytes, on.at_once) : on_blocks(movement, on.blocks, on.at_once),
            platform, cluster, on);
  return collective;
}

}  // namespace stretto::sim
