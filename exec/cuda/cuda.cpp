#include "exec/cuda/cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/module.hpp"
#include "exec/cuda/module/workspace.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::cuda {

std::string reserve_hardware_queues(std::size_t streams) {
  constexpr std::size_t least = 8, most = kMostQueues;  // what CUDA has by itself, and what it can have
  const char* given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (given == nullptr || *given == '\0') {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(std::clamp(streams, least, most)).c_str(), 1);
    return streams <= most ? "" : fmt::format("{} streams share the {} hardware queues that a GPU has", streams, most);
  }
  const auto queues = static_cast<std::size_t>(std::max(1L, std::strtol(given, nullptr, 10)));
  if (queues >= streams) return "";
  return fmt::format(
      "{} streams share {} hardware queues, and wait for each other there: CUDA_DEVICE_MAX_CONNECTIONS is {}", streams,
      queues, given);
}

std::unique_ptr<exec::Executor> make_cuda_executor(const Schedule& schedule, const MemoryPlan& plan,
                                                   const CudaOptions& options) {
  if (schedule.compute_dtype == Dtype::f64)
    throw input_error("[training] precision: expected bf16 or fp32 on a GPU, got fp64");
  MakeCudaExecutor* make = nullptr;
  try {
    make = reinterpret_cast<MakeCudaExecutor*>(load_module("libstretto_cuda.so", "stretto_make_cuda_executor"));
  } catch (const Error& error) {
    throw runtime_failure(std::string("no CUDA here: ") + error.what());
  }
  std::vector<BoundProgram> programs;
  LaunchPlan launches;
  if (options.processes) {
    programs.push_back(bind(schedule, options.processes->rank()));
    launches = plan_launches_of_rank(schedule, programs.front());
  } else {
    for (std::int64_t rank = 0; rank < schedule.mesh.ranks(); ++rank) programs.push_back(bind(schedule, rank));
    launches = plan_launches(schedule, programs);
  }
  return std::unique_ptr<exec::Executor>(make(schedule, plan, options, std::move(programs), std::move(launches)));
}

std::int64_t overhead_bytes(const Schedule& schedule, std::int64_t ranks) {
  return ranks * static_cast<std::int64_t>(schedule.lanes.size() * kWorkspace_bytes);
}

std::string largest_storages(const Schedule& schedule, const RolePlan& role, std::size_t count) {
  std::vector<const Storage*> storages;
  for (StorageId id = 0; id < schedule.storages.size(); ++id)
    if (role.offset_bytes[id] != RolePlan::kNowhere) storages.push_back(&schedule.storages[id]);
  std::sort(storages.begin(), storages.end(), [](const Storage* a, const Storage* b) {
    return a->bytes() != b->bytes() ? a->bytes() > b->bytes() : a->name < b->name;
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(count, storages.size()); ++i)
    text += fmt::format("{}{} {:.1f} MiB", i == 0 ? "" : ", ", storages[i]->name,
                        static_cast<double>(storages[i]->bytes()) / (1 << 20));
  return text;
}

}  // namespace stretto::cuda
