#include "exec/cuda/cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/module.hpp"
#include "exec/cuda/nccl_groups.hpp"
#include "exec/kernel_types.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::cuda {

std::string reserve_hardware_queues(std::size_t streams) {
  // the number that CUDA sets by itself, and the largest possible one
  constexpr std::size_t least = 8, most = kMostQueues;
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

namespace {

// Returns whether AdamW has states that are not in the type of its gradient.
bool has_low_states(const Schedule& schedule) {
  return std::any_of(schedule.operations.begin(), schedule.operations.end(), [&](const Operation& operation) {
    if (!std::holds_alternative<AdamW>(operation.work)) return false;
    const auto type = [&](std::size_t i) { return schedule.dtype_of(operation.accesses[i].view); };
    for (std::size_t state = 4; state < operation.accesses.size(); ++state)
      if (type(state) != type(0)) return true;
    return false;
  });
}

}  // namespace

RanksHere ranks_here(const VerifiedSchedule& verified, launch::ProcessGroup* processes) {
  RanksHere here;
  if (processes) {
    here.programs.push_back(program_of(verified.schedule, verified, processes->rank()));
    require_one_order(verified, here.programs.front());
    here.launches = plan_launches_of_rank(verified.schedule, here.programs.front());
  } else {
    BoundStep step = unfolded(verified.schedule, verified);
    here.launches = plan_launches(verified.schedule, step);
    here.programs = std::move(step.programs);
  }
  return here;
}

std::unique_ptr<exec::Executor> make_cuda_executor(const VerifiedSchedule& verified, const CudaOptions& options) {
  if (verified.schedule.compute_dtype == Dtype::f64)
    throw input_error("[training] precision: expected bf16 or fp32 on a GPU, got fp64");
  if (verified.schedule.step_data.documents || verified.schedule.step_data.loss_weight)
    throw input_error(
        "[training] reset_attention_mask, reset_position_ids, eod_mask_loss: expected none on a GPU, where there are "
        "no kernels for documents yet");
  if (has_low_states(verified.schedule))
    throw input_error(
        "[training] use_precision_aware_optimizer: expected false on a GPU, where the optimizer has kernels for "
        "masters "
        "and moments in fp32 alone, got true");
  if (const std::string missing = exec::missing_kernel(verified.schedule, exec::KernelPlace::gpu); !missing.empty())
    throw input_error(missing);
  MakeCudaExecutor* make = nullptr;
  try {
    make = reinterpret_cast<MakeCudaExecutor*>(load_module("libstretto_cuda.so", "stretto_make_cuda_executor"));
  } catch (const Error& error) {
    throw runtime_failure(std::string("no CUDA here: ") + error.what());
  }
  RanksHere here = ranks_here(verified, options.processes);
  return std::unique_ptr<exec::Executor>(
      make(verified.schedule, verified.plan, options, std::move(here.programs), std::move(here.launches)));
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
