#include "sim/cost/cost_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "model/ring.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/communication.hpp"
#include "sim/cost/evaluate.hpp"
#include "sim/cost/features.hpp"

namespace stretto::sim {

int cores_per_device(const Platform& platform, const Cluster& cluster) {
  return cluster.cores_per_device > 0 ? static_cast<int>(cluster.cores_per_device) : platform.cores;
}

namespace {

KernelInterference interference_of(const Accelerator& accelerator) {
  const BesideCommunication& beside = accelerator.beside_communication;
  KernelInterference result;
  const auto set = [&](DemandClass cls, const Quantity& slower) {
    result.slows[static_cast<std::size_t>(cls)] = slower.value - 1;
    result.slowed[static_cast<std::size_t>(cls)] = beside.communication.value - 1;
  };
  set(DemandClass::gemm, beside.gemm);
  set(DemandClass::attention, beside.attention);
  set(DemandClass::vector, beside.memory_bound);
  set(DemandClass::memory, beside.memory_bound);
  return result;
}

DemandClass class_of(const Work& work) {
  return std::visit(
      []<class W>(const W&) {
        if constexpr (std::is_same_v<W, Gemm> || std::is_same_v<W, GroupedGemm>)
          return DemandClass::gemm;
        else if constexpr (std::is_same_v<W, Attention> || std::is_same_v<W, AttentionProduct>)
          return DemandClass::attention;
        else
          return DemandClass::vector;
      },
      work);
}

// Returns the cost of an NCCL kernel concurrent with compute. Across nodes its bytes are flows too, in which a network
// carries as many bytes as fit its time: with concurrent flows of other groups it may take longer than alone.
CollectiveCost group_cost(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                          const Operation& operation, const GroupSpan& span) {
  CollectiveCost cost;
  if (span.members == 1) return cost;
  const Dtype dtype = schedule.dtype_of(operation.accesses.front().view);
  GroupTime time;
  double card_bytes = 0;
  if (const auto* c = std::get_if<Collective>(&operation.work)) {
    const double element_bytes = double(bytes_of(dtype));
    time = rule_of(c->kind).of_rows
               ? token_exchange_time(accelerator, framework, *c, element_bytes,
                                     schedule.communicators[c->communicator].transport, span)
               : collective_time(accelerator, framework, c->kind, double(c->elements) * element_bytes, span);
    card_bytes = double(ring_cost(c->kind, dtype, c->elements, span.members).edge_bytes) / double(span.cards());
    if (schedule.communicators[c->communicator].joins_tokens) {
      const double copied_us = tensor_parallel_copy_us(accelerator, framework, *c);
      time.us += copied_us;
      time.latency_us += copied_us;
    }
  } else {
    const auto& message = std::get<PointToPoint>(operation.work);
    if (message.is_send) return cost;  // the receiver moves the message
    card_bytes = double(message.elements) * double(bytes_of(dtype));
    time = message_time(accelerator, card_bytes, span);
  }
  cost.movement = {std::max<Picoseconds>(1, from_us(time.us)), 0, DemandClass::memory};
  // Copy engines take no SM. The copy engines of a device reach only its NVLink domain.
  const CommEngine engine = schedule.communicators[communicator_of(operation.work)].engine;
  const bool is_copied = engine == CommEngine::copy_engine && span.nodes == 1;
  cost.interference = is_copied ? KernelInterference{} : interference_of(accelerator);
  if (span.nodes == 1 || time.us <= time.latency_us) return cost;
  // The rate is rounded to sixteenths of a card's rate, because a network has a limit for each distinct rate; the bytes
  // are scaled so that the time is unchanged.
  constexpr double kSteps = 16;
  const double link = accelerator.card_GBps(0) * 1e9, wire_s = (time.us - time.latency_us) * 1e-6;
  const double rate = std::clamp(std::ceil(card_bytes / wire_s / link * kSteps), 1.0, kSteps) / kSteps * link;
  cost.most_bytes_per_s = rate < link ? rate : 0;
  cost.edge_bytes = static_cast<std::int64_t>(wire_s * rate);
  cost.latency = std::max<Picoseconds>(0, cost.movement.alone - std::llround(double(cost.edge_bytes) * 1e12 / rate));
  return cost;
}

HostCosts host_costs(const Schedule& schedule, const Framework& framework) {
  HostCosts host;
  if (framework.issue_us.value == 0 && framework.collective_issue_us.value == 0 &&
      framework.micro_batch_us.value == 0 && framework.step_us.value == 0)
    return host;
  for (const Operation& operation : schedule.operations)
    host.issue.push_back(from_us(framework.issue_us.value * kernels_of(framework, operation) +
                                 (is_communication(operation.work) ? framework.collective_issue_us.value : 0)));
  host.micro_batch = from_us(framework.micro_batch_us.value);
  host.step = from_us(framework.step_us.value);
  host.part = from_us(framework.part_us.value);
  host.waits_for_messages = framework.host_waits_for_messages;
  // Megatron-LM copies the counts of rows to the host in the forward pass, and waits for them before it starts the
  // exchange (core/transformer/moe/token_dispatcher.py, cuda_sync_point "before_ep_alltoall"), and with gathered tokens
  // before it permutes them (dispatch_postprocess()); the gradient's rows have the same counts. Padded rows have none.
  std::map<TensorId, OpId> counts;  // what says where rows go → the operation that counts
  for (OpId id = 0; id < schedule.operations.size(); ++id) {
    const Operation& operation = schedule.operations[id];
    if (operation.phase != Phase::forward) continue;
    if (std::holds_alternative<CountRows>(operation.work)) counts[operation.accesses.front().view.tensor] = id;
    if (const auto* sort = std::get_if<SortTokens>(&operation.work); sort != nullptr && sort->local > 0)
      counts[operation.accesses.back().view.tensor] = id;
    if (const auto* rows = std::get_if<Collective>(&operation.work);
        rows != nullptr && rows->kind == CollectiveKind::dispatch && rows->by_rows())
      host.waits_before[id] = counts.at(operation.accesses[1].view.tensor);
    if (const auto* rows = std::get_if<Permute>(&operation.work);
        rows != nullptr && rows->pass == Pass::forward && rows->capacity > 0 && !rows->apart)
      host.waits_before[id] = counts.at(operation.accesses.front().view.tensor);
  }
  return host;
}

// Throws unless the platform has times for products of all multiplied types.
void require_types(const Schedule& schedule, const std::string& name, const Accelerator& accelerator) {
  for (const Operation& operation : schedule.operations)
    if (std::holds_alternative<Gemm>(operation.work))
      if (const Dtype type = product_type(schedule, operation); !accelerator.multiplies(type))
        throw input_error("platform " + name +
                          ": expected [training] precision = \"bf16\", of which its tables are, got " +
                          std::string(name_of(type)));
}

Costs cost_on_accelerator(const Schedule& schedule, const Accelerator& accelerator, const Framework& framework) {
  Costs costs;
  costs.host = host_costs(schedule, framework);
  costs.cores_per_device = 1;
  costs.sleeps_for_cores = false;
  costs.link_bytes_per_s = accelerator.card_GBps(0) * 1e9;
  std::vector<GroupSpan> spans;
  for (const Communicator& communicator : schedule.communicators) {
    spans.push_back(span_of(schedule, communicator, accelerator.domain, accelerator.pod));
    costs.ring_distance.push_back(spans.back().on_node());
  }
  for (const Operation& operation : schedule.operations) {
    const bool communicates = is_communication(operation.work);
    const Picoseconds alone =
        communicates ? 0 : std::max<Picoseconds>(1, from_us(kernel_us(accelerator, framework, schedule, operation)));
    costs.compute.push_back(communicates ? Demand{} : Demand{alone, 1, class_of(operation.work)});
    costs.collective.push_back(
        communicates ? group_cost(accelerator, framework, schedule, operation, spans[communicator_of(operation.work)])
                     : CollectiveCost{});
  }
  return costs;
}

}  // namespace

Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed,
                    const Framework& framework) {
  if (platform.accelerator && (schedule.placement.ranks_per_device != 1 || cluster.network == Network::nccl))
    throw input_error("platform " + platform.name +
                      ": expected [cluster] ranks_per_device = 1 and network = \"links\" with a published GPU");
  if (platform.accelerator) require_types(schedule, platform.name, *platform.accelerator);
  if (platform.accelerator) return cost_on_accelerator(schedule, *platform.accelerator, framework);
  Costs costs;
  const std::optional<Gpu>& gpu = platform.gpu;
  costs.cores_per_device = gpu ? 1 : cores_per_device(platform, cluster);
  costs.link_bytes_per_s = cluster.link_GBps * 1e9;
  costs.op_overhead = from_us(platform.op_overhead_us.value);
  costs.wake = from_us(platform.wake_us.value);
  costs.timer_overshoot = from_us(platform.timer_overshoot_us.value);
  // Compute kernels of a GPU alternate: no two are concurrent.
  if (!gpu)
    for (int a = 0; a < kDemandClasses; ++a)
      for (int b = 0; b < kDemandClasses; ++b) costs.slowdown[a][b] = platform.slowdown[a][b].value;
  costs.sleeps_for_cores = !gpu;

  const int threads = gpu ? 1 : schedule.placement.threads_per_rank;
  const bool oversubscribed = !gpu && schedule.placement.ranks_per_device * threads > costs.cores_per_device;
  const auto demand = [&](const WorkCost& cost) {
    const double turns = oversubscribed ? 1 + platform.oversubscribed[static_cast<int>(cost.cls)].value : 1.0;
    double us = 0;
    for (const WorkCost& known : known_as(platform, cost)) us += cost_us(platform, known);
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
