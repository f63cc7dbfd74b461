#include "sim/cost/cost_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "model/ring.hpp"
#include "sim/accelerator/kernel_time.hpp"
#include "sim/cost/communication.hpp"
#include "sim/cost/concurrent_kernels.hpp"
#include "sim/cost/evaluate.hpp"
#include "sim/cost/features.hpp"
#include "sim/cost/host_costs.hpp"

namespace stretto::sim {

int cores_per_device(const Platform& platform, const Cluster& cluster) {
  return cluster.cores_per_device > 0 ? static_cast<int>(cluster.cores_per_device) : platform.cores;
}

namespace {

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

// Returns for each communicator [distance] the share of its messages that cross nodes, where every member of a group on
// several nodes sends to every other. Such messages wait for no others, so that a rank's take as long in sum as in the
// mean over the ranks. Empty: messages go round a ring, and the slowest of its edges holds up the others.
std::vector<std::vector<double>> crossing_messages(const Schedule& schedule, const std::vector<GroupSpan>& spans,
                                                   std::int64_t domain) {
  std::vector<std::set<std::int64_t>> distances(spans.size());
  for (const Operation& operation : schedule.operations)
    if (const auto* message = std::get_if<PointToPoint>(&operation.work);
        message != nullptr && message->is_send && message->offset.is_constant()) {
      const std::int64_t size = spans[message->communicator].members;
      distances[message->communicator].insert((message->offset.value() % size + size) % size);
    }
  std::vector<std::vector<double>> crossing(spans.size());
  for (std::size_t c = 0; c < spans.size(); ++c)
    if (spans[c].nodes > 1 && spans[c].members > 3 && std::ssize(distances[c]) == spans[c].members - 1)
      crossing[c] = shares_between_nodes(schedule, schedule.communicators[c], domain);
  return crossing;
}

// Returns the time of a message when a given share of its bytes crosses nodes, at the rate that an exchange of rows
// reaches there.
GroupTime exchanged_message_time(const Accelerator& accelerator, double bytes, const GroupSpan& span, double crossing) {
  GroupSpan on_node = span;
  on_node.nodes = 1;
  const double slower = accelerator.network_share.value / accelerator.token_exchange.network_share.value;
  const GroupTime across = message_time(accelerator, bytes * slower, span),
                  inside = message_time(accelerator, bytes, on_node);
  return {crossing * across.us + (1 - crossing) * inside.us,
          crossing * across.latency_us + (1 - crossing) * inside.latency_us};
}

// Returns the cost of an NCCL kernel concurrent with compute. Across nodes its bytes are flows too, in which a network
// carries as many bytes as fit its time: with concurrent flows of other groups it may take longer than alone.
CollectiveCost group_cost(const Accelerator& accelerator, const Framework& framework, const Schedule& schedule,
                          const Operation& operation, const GroupSpan& span, const GroupLimit& limit,
                          const std::vector<double>& crossing, const ConcurrentKernels& kernels) {
  CollectiveCost cost;
  if (span.members == 1) return cost;
  const Dtype dtype = schedule.dtype_of(operation.accesses.front().view);
  GroupTime time;
  double card_bytes = 0;
  if (const auto* c = std::get_if<Collective>(&operation.work)) {
    double element_bytes = double(bytes_of(dtype));
    // FSDP gathers a layer's weights as codes, where the framework keeps them so.
    if (framework.element_bytes.contains("gathered_codes") && c->kind == CollectiveKind::all_gather &&
        schedule.tensors[operation.accesses.front().view.tensor].role == TensorRole::parameter_shard)
      element_bytes = std::min(element_bytes, rule_of(lowest_product_type(schedule)).bytes);
    time = rule_of(c->kind).of_rows
               ? token_exchange_time(accelerator, framework, *c, element_bytes,
                                     schedule.communicators[c->communicator].transport, span, limit)
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
    if (crossing.empty() || !message.offset.is_constant()) {  // neighbours in pairs have no one distance
      time = message_time(accelerator, card_bytes, span);
    } else {
      const auto distance =
          static_cast<std::size_t>((message.offset.value() % span.members + span.members) % span.members);
      time = exchanged_message_time(accelerator, card_bytes, span, crossing[distance]);
      card_bytes *= crossing[distance];
    }
  }
  cost.movement = {std::max<Picoseconds>(1, from_us(time.us)), 0, DemandClass::memory};
  // Copy engines take no SM. The copy engines of a device reach only its NVLink domain.
  const CommEngine engine = schedule.communicators[communicator_of(operation.work)].engine;
  const bool is_copied = engine == CommEngine::copy_engine && span.nodes == 1;
  cost.interference =
      is_copied ? KernelInterference{} : kernels.of(operation.work, span, card_bytes * double(span.cards()), time.us);
  if (span.nodes == 1 || time.us <= time.latency_us || card_bytes == 0) return cost;
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

// Returns how the framework runs attention and products of experts.
KernelChoices choices_of(const Schedule& schedule, const Training& training) {
  const bool is_mx =
      std::any_of(schedule.operations.begin(), schedule.operations.end(), [](const Operation& operation) {
        const auto* grouped = std::get_if<GroupedGemm>(&operation.work);
        return grouped != nullptr && grouped->scaling_a == Scaling::mx;
      });
  return {training.fp8_dot_product_attention, training.use_transformer_engine_op_fuser && is_mx};
}

// Throws unless the platform has times for products of all multiplied types.
void require_types(const Schedule& schedule, const std::string& name, const Accelerator& accelerator) {
  for (const Operation& operation : schedule.operations)
    if (std::holds_alternative<Gemm>(operation.work))
      if (const ProductType type = product_type_of(schedule, operation); !accelerator.multiplies(type))
        throw input_error("platform " + name + ": expected " +
                          (is_low(type) ? "products in a precision that its gemm_table has"
                                        : "[training] precision = \"bf16\", the precision of its tables") +
                          ", got " +
                          (is_low(type) ? name_of(type) : std::string(name_of(product_type(schedule, operation)))));
}

}  // namespace

bool counts_slots(const Schedule& schedule) {
  return std::any_of(schedule.operations.begin(), schedule.operations.end(), [](const Operation& operation) {
    const auto* count = std::get_if<CountRows>(&operation.work);
    return count != nullptr && count->ranks == 1;
  });
}

double most_rows(const Schedule& schedule, const ExpertLoads& loads) {
  const Route* route = nullptr;
  for (const Operation& operation : schedule.operations)
    if (const auto* found = std::get_if<Route>(&operation.work)) route = found;
  for (const Operation& operation : schedule.operations) {
    // Ranks that gather all tokens have those copies that go to their experts.
    if (const auto* sort = std::get_if<SortTokens>(&operation.work);
        route != nullptr && sort != nullptr && sort->local > 0 && sort->each == 0)
      return most_over_mean(loads, route->experts, route->topk,
                            double(sort->rows) * (counts_slots(schedule) ? double(sort->experts / sort->local) : 1),
                            sort->experts / sort->local);
    const auto* rows = std::get_if<Collective>(&operation.work);
    if (route == nullptr || rows == nullptr || rows->kind != CollectiveKind::dispatch || !rows->by_rows()) continue;
    const std::int64_t ranks = schedule.communicators[rows->communicator].size;
    const double of_rank = double(rows->elements / std::max<std::int64_t>(1, rows->cols));
    return most_over_mean(loads, route->experts, route->topk, of_rank * double(ranks) / double(route->topk), ranks);
  }
  return 1;
}

namespace {

// Returns the operation as it is on the rank that gets `most` times the rows.
Operation with_most_rows(Operation operation, double most) {
  std::visit(
      [most](auto& work) {
        if constexpr (requires { work.capacity, work.rows; }) {
          if (work.capacity > 0) work.rows = std::llround(double(work.rows) * most);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(work)>, Collective>) {
          if (work.by_rows()) work.elements = std::llround(double(work.elements) * most);
        }
      },
      operation.work);
  return operation;
}

// Returns whether an operation makes codes of a parameter. Frameworks cast a frozen base once, when they load it, and
// keep the codes (TransformerEngine's fp8_model_init; bitsandbytes' and torchao's frozen weights), so that a step has
// no such kernel.
bool is_cast_of_parameter(const Schedule& schedule, const Operation& operation) {
  if (!std::holds_alternative<Quantise>(operation.work) && !std::holds_alternative<Amax>(operation.work)) return false;
  return std::any_of(operation.accesses.begin(), operation.accesses.end(), [&](const Access& access) {
    const Tensor& tensor = schedule.tensors[access.view.tensor];
    return schedule.storages[tensor.places.front().storage].kind == BufferKind::parameter;
  });
}

Costs cost_on_accelerator(const Schedule& schedule, const Accelerator& accelerator, const Cpu& cpu,
                          const Framework& framework, const Training& training) {
  Costs costs;
  const KernelChoices choices = choices_of(schedule, training);
  costs.host = host_costs(schedule, framework, training, cpu, choices.fuses_experts);
  const double most = most_rows(schedule, training.expert_loads);
  GroupLimit limit;
  for (const Operation& operation : schedule.operations)
    if (const auto* route = std::get_if<Route>(&operation.work)) limit = {route->groups, route->group_topk};
  costs.cores_per_device = 1;
  costs.sleeps_for_cores = false;
  costs.link_bytes_per_s = accelerator.card_GBps(0) * 1e9;
  std::vector<GroupSpan> spans;
  for (const Communicator& communicator : schedule.communicators) {
    spans.push_back(span_of(schedule, communicator, accelerator.domain, accelerator.pod));
    costs.ring_distance.push_back(spans.back().on_node());
  }
  const std::vector<std::vector<double>> crossing = crossing_messages(schedule, spans, accelerator.domain);
  const ConcurrentKernels kernels(accelerator, framework, schedule, choices);
  for (const Operation& equal : schedule.operations) {
    const Operation& operation = most == 1 ? equal : with_most_rows(equal, most);
    const bool communicates = is_communication(operation.work);
    const bool is_cast_before = training.frozen_base && is_cast_of_parameter(schedule, operation);
    const Picoseconds alone =
        communicates ? 0
        : is_cast_before
            ? 1
            : std::max<Picoseconds>(1, from_us(kernel_us(accelerator, framework, schedule, operation, choices)));
    costs.compute.push_back(communicates ? Demand{} : Demand{alone, 1, class_of(operation.work)});
    if (!communicates) {
      costs.collective.emplace_back();
      continue;
    }
    const std::uint32_t communicator = communicator_of(operation.work);
    costs.collective.push_back(group_cost(accelerator, framework, schedule, operation, spans[communicator], limit,
                                          crossing[communicator], kernels));
  }
  return costs;
}

}  // namespace

Costs cost_schedule(const Schedule& schedule, const Platform& platform, const Cluster& cluster, double core_speed,
                    const Framework& framework, const Training& training) {
  if (platform.accelerator && (schedule.placement.ranks_per_device != 1 || cluster.network == Network::nccl))
    throw input_error("platform " + platform.name +
                      ": expected [cluster] ranks_per_device = 1 and network = \"links\" with a published GPU");
  if (platform.accelerator) require_types(schedule, platform.name, *platform.accelerator);
  if (platform.accelerator)
    return cost_on_accelerator(schedule, *platform.accelerator, platform.cpu, framework, training);
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
