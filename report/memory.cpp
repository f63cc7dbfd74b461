#include "report/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/units.hpp"

namespace stretto {
namespace {

// A byte that several storages have counts for the first kind in this order.
constexpr std::array kSharing = {BufferKind::gradient, BufferKind::activation, BufferKind::workspace};

std::int64_t* part_of(MemoryUse& use, BufferKind kind) {
  switch (kind) {
    case BufferKind::parameter:
      return &use.parameters;
    case BufferKind::optimizer_state:
      return &use.optimizer_state;
    case BufferKind::input:
    case BufferKind::scalar:
      return &use.inputs_and_scalars;
    case BufferKind::gradient:
      return &use.gradients;
    case BufferKind::activation:
      return &use.activations;
    case BufferKind::workspace:
      return &use.workspace;
  }
  return &use.workspace;
}

MemoryUse use_of(const Schedule& schedule, const RolePlan& plan) {
  struct Bound {
    std::int64_t at_byte = 0;
    std::size_t kind = 0;  // index into kSharing
    int change = 0;        // change in the number of storages of the kind that have the bytes from here on
  };
  MemoryUse use;
  std::vector<Bound> bounds;
  for (StorageId id = 0; id < schedule.storages.size(); ++id) {
    const Storage& storage = schedule.storages[id];
    if (!plan.has(id) || storage.bytes() == 0) continue;
    if (shares_with_nobody(storage.kind)) {
      *part_of(use, storage.kind) += storage.bytes();
      continue;
    }
    const auto kind =
        static_cast<std::size_t>(std::find(kSharing.begin(), kSharing.end(), storage.kind) - kSharing.begin());
    const std::int64_t begin = plan.offset_bytes[id];
    bounds.push_back({begin, kind, 1});
    bounds.push_back({begin + storage.bytes(), kind, -1});
  }
  std::sort(bounds.begin(), bounds.end(), [](const Bound& a, const Bound& b) { return a.at_byte < b.at_byte; });
  std::array<int, kSharing.size()> live{};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    live[bounds[i].kind] += bounds[i].change;
    if (i + 1 == bounds.size()) break;
    const auto first = std::find_if(live.begin(), live.end(), [](int count) { return count > 0; });
    if (first != live.end())
      *part_of(use, kSharing[static_cast<std::size_t>(first - live.begin())]) +=
          bounds[i + 1].at_byte - bounds[i].at_byte;
  }
  use.workspace += plan.bytes - use.peak();
  use.state = use.parameters + use.gradients + use.optimizer_state + use.inputs_and_scalars;
  return use;
}

}  // namespace

std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan) {
  std::vector<MemoryUse> uses;
  for (std::size_t role = 0; role < plan.roles.size(); ++role) {
    uses.push_back(use_of(schedule, plan.roles[role]));
    uses.back().role = schedule.programs[role].role;
  }
  return uses;
}

std::size_t DeviceMemory::fullest() const {
  const auto most = std::max_element(roles.begin(), roles.end(),
                                     [](const MemoryUse& a, const MemoryUse& b) { return a.taken() < b.taken(); });
  return static_cast<std::size_t>(most - roles.begin());
}

std::int64_t DeviceMemory::peak_bytes() const {
  std::int64_t most = 0;
  for (const MemoryUse& use : roles) most = std::max(most, use.peak());
  return most;
}

std::int64_t DeviceMemory::free_bytes_of(const MemoryUse& use) const {
  return device_bytes - reserved_bytes() - use.taken() * ranks_per_device;
}

std::string memory_text(const DeviceMemory& memory) {
  if (memory.roles.empty()) return "–";
  const MemoryUse& fullest = memory.roles[memory.fullest()];
  std::string text = size_text(double(memory.taken_bytes())) + " a rank";
  if (!fullest.by_framework.empty()) text += " (plan " + size_text(double(fullest.peak())) + ")";
  if (memory.ranks_per_device > 1) text += fmt::format(", {} ranks a device", memory.ranks_per_device);
  if (memory.reserved_bytes() > 0) text += ", " + size_text(double(memory.reserved_bytes())) + " reserved";
  text += " of " + size_text(double(memory.device_bytes));
  const std::int64_t free = memory.free_bytes();
  text += free >= 0 ? "; fits, " + size_text(double(free)) + " are free"
                    : "; DOES NOT FIT, " + size_text(double(-free)) + " too much";
  if (memory.roles.size() > 1) text += " on " + memory.roles[memory.fullest()].role + ", the fullest";
  return text;
}

Table memory_table(const DeviceMemory& memory) {
  const Unit unit = byte_unit(double(memory.peak_bytes()));
  std::vector<std::string> headers = {"memory, " + unit.name, "parameters", "optimizer", "gradients",
                                      "activations",          "workspace",  "inputs",    "sum"};
  if (memory.device_bytes > 0) headers.push_back("free");
  Table table(headers);
  for (const MemoryUse& use : memory.roles) {
    std::vector<std::string> cells = {use.role};
    for (const std::int64_t bytes : {use.parameters, use.optimizer_state, use.gradients, use.activations, use.workspace,
                                     use.inputs_and_scalars, use.peak()})
      cells.push_back(unit.number(double(bytes)));
    if (memory.device_bytes > 0) cells.push_back(size_text(double(memory.free_bytes_of(use))));
    table.add_row(std::move(cells));
  }
  const auto add_part = [&](const std::string& what, std::int64_t bytes, const char* sign) {
    std::vector<std::string> cells(headers.size());
    cells.front() = what;
    cells[headers.size() - (memory.device_bytes > 0 ? 2 : 1)] = sign + unit.number(double(bytes));
    table.add_row(std::move(cells));
  };
  if (!memory.roles.empty()) {
    const MemoryUse& fullest = memory.roles[memory.fullest()];
    for (const BesidePlan& part : fullest.by_framework)
      add_part(fmt::format("{}: {}, {}", fullest.role, part.what, part.kind), part.bytes, part.bytes > 0 ? "+" : "");
    if (fullest.held > 0) add_part(fullest.role + ": held by PyTorch's allocator", fullest.held, "+");
  }
  for (const BesidePlan& part : memory.beside) add_part(fmt::format("{}, {}", part.what, part.kind), part.bytes, "");
  return table;
}

}  // namespace stretto
