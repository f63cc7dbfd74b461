#include "diagnose/groups.hpp"

#include <algorithm>
#include <limits>

#include "diagnose/kinds.hpp"

namespace stretto::diagnose {
namespace {

double closeness(double a, double b) { return a <= 0 || b <= 0 ? 0.5 : std::min(a, b) / std::max(a, b); }

// Returns the similarity of two kinds, from 0 to 6; below 0: they are not.
double likeness(const KernelKind& kernels, const OperationKind& operations) {
  const Fit fit = fit_of(*operations.operation, kernels.cls);
  if (fit.first < 0 && fit.further < 0) return -1;
  if (kernels.members > 0 && kernels.members != operations.members) return -1;
  // Some frameworks name process groups as the schedule does.
  const double named = kernels.group.find(operations.name) != std::string::npos ? 1 : 0;
  return named + std::max(0.0, fit.first) + 2 * closeness(double(kernels.kernels.size()), operations.count) +
         2 * closeness(kernels.bytes, operations.bytes);
}

}  // namespace

double communicated_bytes(const Schedule& schedule, const Operation& operation) {
  std::int64_t elements = 0;
  if (const auto* collective = std::get_if<Collective>(&operation.work)) elements = collective->elements;
  if (const auto* message = std::get_if<PointToPoint>(&operation.work)) elements = message->elements;
  if (elements == 0 || operation.accesses.empty()) return 0;
  return double(elements) * double(bytes_of(schedule.dtype_of(operation.accesses.front().view)));
}

double communicated_bytes(const trace::RankTrace& trace, const trace::Kernel& kernel) {
  if (kernel.message < 0) return 0;
  const trace::Message& message = trace.messages[static_cast<std::size_t>(kernel.message)];
  return double(std::max(message.in_elements, message.out_elements)) * message.element_bytes;
}

std::vector<OperationKind> operation_kinds(const Schedule& schedule, const BoundProgram& program) {
  constexpr LaneId kAllLanes = std::numeric_limits<LaneId>::max();
  constexpr std::size_t kMessages = ~std::size_t{0};
  std::map<std::tuple<LaneId, std::uint32_t, std::size_t>, OperationKind> kinds;  // [lane, communicator, kind]
  for (LaneId lane = 0; lane < program.lanes.size(); ++lane)
    for (const std::uint32_t op : program.lanes[lane]) {
      const Operation& operation = schedule.operations[program.ops[op].op];
      // Messages of a group are moved by one kernel.
      if (!is_communication(operation.work) || program.ops[op].joined) continue;
      const auto* collective = std::get_if<Collective>(&operation.work);
      const std::uint32_t communicator = communicator_of(operation.work);
      OperationKind& kind = kinds[{collective ? lane : kAllLanes, communicator,
                                   collective ? static_cast<std::size_t>(collective->kind) : kMessages}];
      if (kind.lanes.empty() || kind.lanes.back() != lane) kind.lanes.push_back(lane);
      kind.communicator = communicator;
      kind.name = schedule.communicators[communicator].name;
      kind.operation = &operation;
      kind.count += 1;
      kind.bytes += communicated_bytes(schedule, operation);
      kind.members = schedule.communicators[communicator].size;
    }
  std::vector<OperationKind> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

std::vector<KernelKind> kernel_kinds(const trace::RankTrace& trace, const std::vector<std::uint32_t>& kernels) {
  std::map<std::tuple<std::uint32_t, std::string, trace::KernelClass>, KernelKind> kinds;
  for (const std::uint32_t index : kernels) {
    const trace::Kernel& kernel = trace.kernels[index];
    if (!trace::is_communication(kernel.cls)) continue;
    const trace::Message* message =
        kernel.message < 0 ? nullptr : &trace.messages[static_cast<std::size_t>(kernel.message)];
    KernelKind& kind = kinds[{kernel.stream, message ? message->group : "", kernel.cls}];
    kind.stream = kernel.stream;
    kind.cls = kernel.cls;
    if (message) {
      kind.group = message->group;
      kind.members = message->group_size;
    }
    kind.kernels.push_back(index);
    kind.bytes += communicated_bytes(trace, kernel);
  }
  std::vector<KernelKind> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

std::vector<std::size_t> match_kinds(const std::vector<KernelKind>& kernels,
                                     const std::vector<OperationKind>& operations) {
  struct Pair {
    double likeness = 0;
    std::size_t kernels = 0, operations = 0;
  };
  std::vector<Pair> pairs;
  for (std::size_t k = 0; k < kernels.size(); ++k)
    for (std::size_t o = 0; o < operations.size(); ++o)
      if (const double likely = likeness(kernels[k], operations[o]); likely >= 0) pairs.push_back({likely, k, o});
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.likeness > b.likeness; });
  std::vector<std::size_t> matched(kernels.size(), kNoKind);
  std::vector<bool> is_taken(operations.size(), false);
  for (const bool may_share : {false, true})
    for (const Pair& pair : pairs) {
      if (matched[pair.kernels] != kNoKind || (is_taken[pair.operations] && !may_share)) continue;
      matched[pair.kernels] = pair.operations;
      is_taken[pair.operations] = true;
    }
  return matched;
}

}  // namespace stretto::diagnose
