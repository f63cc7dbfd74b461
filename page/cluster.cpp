#include "page/cluster.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace stretto::page {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostCells = 4096;

Json groups_of(const DrawnStep& drawn, std::int64_t gpu) {
  const Schedule& schedule = drawn.step().schedule;
  Json groups = Json::array();
  for (const Coord axis : kExposedAxes) {
    // The group that is cut along few axes is the axis's own; others, such as that of the gradient's norm, span more.
    const Communicator* chosen = nullptr;
    for (const Communicator& communicator : schedule.communicators) {
      if (communicator.size <= 1 || !communicator.subset.empty() || axis_of(communicator.axes) != axis) continue;
      const bool is_better = chosen == nullptr || communicator.axes.size() < chosen->axes.size() ||
                             (communicator.axes.size() == chosen->axes.size() && communicator.size > chosen->size);
      if (is_better) chosen = &communicator;
    }
    if (chosen == nullptr) continue;
    Json group = link_json(drawn, *chosen);
    group["axis"] = name_of(axis);
    group["gpus"] = schedule.mesh.members(gpu, chosen->axes);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

Json cluster_json(const DrawnStep& drawn, std::int64_t gpu) {
  const Schedule& schedule = drawn.step().schedule;
  const Mesh& mesh = schedule.mesh;
  const std::size_t program = drawn.program_of(gpu);
  const std::int64_t gpus = mesh.ranks(),
                     domain = drawn.platform().accelerator ? drawn.platform().accelerator->domain : gpus,
                     a_cell = gpus > kMostCells ? domain : 1;
  Json sizes = Json::object(), places = Json::object(), at = Json::object();
  const Coordinates own = mesh.coordinates_of(gpu);
  for (const Coord axis : kExposedAxes) {
    if (mesh.size(axis) <= 1) continue;
    sizes[name_of(axis)] = mesh.size(axis);
    at[name_of(axis)] = own[axis];
    Json of_axis = Json::array();
    for (std::int64_t rank = 0; rank < gpus; rank += a_cell) of_axis.push_back(mesh.coordinates_of(rank)[axis]);
    places[name_of(axis)] = std::move(of_axis);
  }
  return {{"gpus", gpus},
          {"gpus_a_node", domain},
          {"gpus_a_cell", a_cell},
          {"sizes", std::move(sizes)},
          {"places", std::move(places)},
          {"gpu",
           {{"rank", gpu},
            {"node", gpu / domain},
            {"role", schedule.programs[drawn.program(program).role].role},
            {"at", std::move(at)},
            {"groups", groups_of(drawn, gpu)}}}};
}

Json stages_memory_json(const DeviceMemory& memory) {
  Json stages = Json::array();
  for (const MemoryUse& use : memory.roles) {
    const std::int64_t ranks = memory.ranks_per_device;
    const auto part = [](const char* name, std::int64_t bytes) { return Json{{"part", name}, {"bytes", bytes}}; };
    // Workspaces, inputs and what kernels keep come and go with the activations.
    const std::int64_t activations = use.allocated() - use.parameters - use.gradients - use.optimizer_state;
    stages.push_back({{"stage", use.role},
                      {"bytes", memory.bytes_of(use)},
                      {"parts",
                       {part("parameters", use.parameters * ranks), part("gradients", use.gradients * ranks),
                        part("optimizer", use.optimizer_state * ranks), part("activations", activations * ranks),
                        part("CUDA, NCCL, allocator", use.held * ranks + memory.reserved_bytes())}}});
  }
  return stages;
}

}  // namespace stretto::page
