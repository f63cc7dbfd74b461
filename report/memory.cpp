#include "report/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/values_of.hpp"

namespace stretto {
namespace {

// A byte that several storages have counts for the first kind in this order.
constexpr std::array kSharing = {BufferKind::gradient, BufferKind::activation, BufferKind::workspace};

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
      part_of(use, storage.kind) += storage.bytes();
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
      part_of(use, kSharing[static_cast<std::size_t>(first - live.begin())]) +=
          bounds[i + 1].at_byte - bounds[i].at_byte;
  }
  use.workspace += plan.bytes - use.allocated();
  use.state = use.parameters + use.gradients + use.optimizer_state + use.inputs_and_scalars;
  return use;
}

// Returns the bytes of a device's ranks that are of a role, by part, without the memory outside of their tensors.
std::vector<OutsidePlan> parts_of(const MemoryUse& use, std::int64_t ranks) {
  std::vector<OutsidePlan> parts;
  const auto add = [&](const char* what, std::int64_t bytes) {
    const auto source = use.sources.find(what);
    const bool is_known = source != use.sources.end();
    parts.push_back({what, bytes * ranks, is_known ? source->second.kind : "exact",
                     is_known ? source->second.origin : "the schedule's tensors"});
  };
  add("parameters", use.parameters);
  add("gradients", use.gradients);
  add("optimizer state", use.optimizer_state);
  add("activations", use.activations);
  add("workspace", use.workspace);
  add("inputs and scalars", use.inputs_and_scalars);
  for (OutsidePlan part : use.further) {
    part.bytes *= ranks;
    parts.push_back(std::move(part));
  }
  parts.push_back({"fragmentation: held by the allocator", use.held * ranks, "derived",
                   "PyTorch's caching allocator (predict/caching_allocator.hpp)"});
  return parts;
}

}  // namespace

std::int64_t& part_of(MemoryUse& use, BufferKind kind) {
  switch (kind) {
    case BufferKind::parameter:
      return use.parameters;
    case BufferKind::optimizer_state:
      return use.optimizer_state;
    case BufferKind::input:
    case BufferKind::scalar:
      return use.inputs_and_scalars;
    case BufferKind::gradient:
      return use.gradients;
    case BufferKind::activation:
      return use.activations;
    case BufferKind::workspace:
      return use.workspace;
  }
  return use.workspace;
}

std::vector<MemoryUse> memory_use(const Schedule& schedule, const MemoryPlan& plan) {
  std::vector<MemoryUse> uses;
  for (std::size_t role = 0; role < plan.roles.size(); ++role) {
    uses.push_back(use_of(schedule, plan.roles[role]));
    uses.back().role = schedule.programs[role].role;
  }
  return uses;
}

const char* name_of(Fit fit) { return name_in({"fits", "tight", "does not fit"}, fit); }

Fit fit_of(double bytes, double device_bytes, double unsure) {
  if (device_bytes == 0 || bytes * (1 + unsure) <= device_bytes) return Fit::fits;
  return bytes * (1 - unsure) <= device_bytes ? Fit::tight : Fit::does_not_fit;
}

std::size_t DeviceMemory::fullest() const {
  const auto most = std::max_element(roles.begin(), roles.end(),
                                     [](const MemoryUse& a, const MemoryUse& b) { return a.taken() < b.taken(); });
  return static_cast<std::size_t>(most - roles.begin());
}

std::vector<OutsidePlan> DeviceMemory::parts() const {
  if (roles.empty()) return {};
  std::vector<OutsidePlan> parts = parts_of(roles[fullest()], ranks_per_device);
  parts.insert(parts.end(), outside_plan.begin(), outside_plan.end());
  std::erase_if(parts, [](const OutsidePlan& part) { return part.bytes == 0; });
  return parts;
}

std::string memory_text(const DeviceMemory& memory, const std::string& device) {
  if (memory.roles.empty()) return "–";
  const double bytes = double(memory.predicted_bytes());
  std::string text = size_text(bytes) + " of " + size_text(double(memory.device_bytes)) + " a " + device;
  if (memory.ranks_per_device > 1) text += fmt::format(", which has {} ranks", memory.ranks_per_device);
  const std::int64_t free = memory.free_bytes();
  const std::string left = free >= 0 ? size_text(double(free)) + " are free" : size_text(double(-free)) + " too much";
  const Fit fit = memory.fit();
  text += fit == Fit::fits ? "; fits, " : fit == Fit::tight ? "; TIGHT, " : "; DOES NOT FIT, ";
  text += left;
  if (memory.roles.size() > 1) text += " on " + memory.roles[memory.fullest()].role + ", the fullest";
  if (fit == Fit::tight)
    text += fmt::format("; within {:.0f} % it is {} to {}", 100 * memory.unsure, size_text(bytes * (1 - memory.unsure)),
                        size_text(bytes * (1 + memory.unsure)));
  return text;
}

std::vector<std::string> numbers_that_add_up(const std::vector<std::int64_t>& values, const Unit& unit) {
  // In the last printed digit each value is rounded down; those that lose most get what the sum lacks.
  const double digit = unit.per_unit * std::pow(10., -unit.decimals);
  std::vector<std::int64_t> digits;
  std::vector<std::size_t> by_rest(values.size());
  std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
  std::int64_t sum = 0, lacking = 0;
  for (const std::int64_t value : values) {
    digits.push_back(static_cast<std::int64_t>(double(value) / digit));
    sum += value;
    lacking -= digits.back();
  }
  lacking += std::llround(std::stod(unit.number(double(sum))) * std::pow(10., unit.decimals));
  std::stable_sort(by_rest.begin(), by_rest.end(), [&](std::size_t a, std::size_t b) {
    return double(values[a]) / digit - double(digits[a]) > double(values[b]) / digit - double(digits[b]);
  });
  for (std::int64_t i = 0; i < lacking && i < std::ssize(by_rest); ++i) ++digits[by_rest[static_cast<std::size_t>(i)]];
  std::vector<std::string> numbers;
  for (const std::int64_t count : digits) numbers.push_back(unit.number(double(count) * digit));
  return numbers;
}

Table memory_table(const DeviceMemory& memory) {
  const Unit unit = byte_unit(double(memory.predicted_bytes()));
  const std::string where = memory.roles.size() > 1 ? " of " + memory.roles[memory.fullest()].role : "";
  Table table({"memory" + where, unit.name, "kind"});
  const std::vector<OutsidePlan> parts = memory.parts();
  std::vector<std::int64_t> bytes;
  for (const OutsidePlan& part : parts) bytes.push_back(part.bytes);
  const std::vector<std::string> numbers = numbers_that_add_up(bytes, unit);
  for (std::size_t i = 0; i < parts.size(); ++i) table.add_row({parts[i].what, numbers[i], parts[i].kind});
  table.add_row({"sum", unit.number(double(memory.predicted_bytes())), ""});
  return table;
}

Table stages_table(const DeviceMemory& memory) {
  const Unit unit = byte_unit(double(memory.predicted_bytes()));
  std::vector<std::string> headers = {"memory, " + unit.name, "parameters", "gradients", "optimizer",
                                      "activations",          "workspace",  "inputs"};
  const auto any = [&](const auto& has) { return std::any_of(memory.roles.begin(), memory.roles.end(), has); };
  const bool has_further = any([](const MemoryUse&use) { return !use.further.empty(); }),
             has_held = any([](const MemoryUse&use) { return use.held > 0; });
  if (has_further) headers.push_back("other tensors");
  if (has_held) headers.push_back("fragmentation");
  if (!memory.outside_plan.empty()) headers.push_back("outside of tensors");
  headers.push_back("sum");
  if (memory.device_bytes > 0) headers.push_back("free");
  Table table(headers);
  for (const MemoryUse& use : memory.roles) {
    std::vector<std::int64_t> bytes = {use.parameters,  use.gradients, use.optimizer_state,
                                       use.activations, use.workspace, use.inputs_and_scalars};
    if (has_further) bytes.push_back(sum_of(use.further));
    if (has_held) bytes.push_back(use.held);
    for (std::int64_t& part : bytes) part *= memory.ranks_per_device;
    if (!memory.outside_plan.empty()) bytes.push_back(memory.reserved_bytes());
    std::vector<std::string> cells = numbers_that_add_up(bytes, unit);
    cells.insert(cells.begin(), use.role);
    cells.push_back(unit.number(double(memory.bytes_of(use))));
    if (memory.device_bytes > 0) cells.push_back(size_text(double(memory.free_bytes_of(use))));
    table.add_row(std::move(cells));
  }
  return table;
}

std::string memory_tables_text(const DeviceMemory& memory) {
  std::string text = memory_table(memory).text();
  if (memory.roles.size() > 1) text += "\n" + stages_table(memory).text();
  return text;
}

}  // namespace stretto
