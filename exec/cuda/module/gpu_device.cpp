#include "exec/cuda/module/gpu_device.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "exec/cuda/memory_outside_plan.hpp"
#include "exec/cuda/module/check.hpp"
#include "exec/cuda/module/library.hpp"
#include "exec/launch/process_group.hpp"

namespace stretto::cuda {
namespace {

// Returns the number of processes on this machine.
std::int64_t ranks_of_machine(launch::ProcessGroup& processes) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const launch::Bytes mine(reinterpret_cast<const std::byte*>(host),
                           reinterpret_cast<const std::byte*>(host) + std::strlen(host));
  const std::vector<launch::Bytes> all = processes.all_gather(mine, sizeof host);
  return std::count(all.begin(), all.end(), mine);
}

// Returns GpuDevice::memory_bytes of a device of CUDA's. NVML numbers devices differently, so a device's place on the
// bus says which it is.
std::int64_t total_of_card(int number) try {
  // nvml.h, "nvmlMemory_t": bytes in total, free, in use.
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  const Library nvml("libnvidia-ml.so.1", "NVML");
  int (*init)() = nullptr;
  int (*device_at)(const char*, void**) = nullptr;
  int (*memory_of)(void*, Memory*) = nullptr;
  nvml.find("nvmlInit_v2", init);
  nvml.find("nvmlDeviceGetHandleByPciBusId_v2", device_at);
  nvml.find("nvmlDeviceGetMemoryInfo", memory_of);
  char bus[32] = "";
  void* device = nullptr;
  Memory memory;
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, number) != cudaSuccess || init() != 0 || device_at(bus, &device) != 0 ||
      memory_of(device, &memory) != 0)
    return 0;
  return static_cast<std::int64_t>(memory.total);
} catch (const Error&) {
  return 0;
}

}  // namespace

GpuDevice choose_device(launch::ProcessGroup* processes) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0)
    throw runtime_failure(std::string("no GPU: ") + (error == cudaSuccess ? "no device"
                                                     : error == cudaErrorInsufficientDriver
                                                         ? "no driver, or one too old for this CUDA"
                                                         : cudaGetErrorString(error)));
  // A launcher shows every process either all devices of its machine, or only its own.
  const int number = processes ? static_cast<int>(processes->world().local_rank % count) : 0;
  check(cudaSetDevice(number), "choosing the device");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), "asking the device");
  GpuDevice device;
  device.name = properties.name;
  device.sms = properties.multiProcessorCount;
  device.memory_bytes = total_of_card(number);
  device.compute_capability = properties.major + properties.minor / 10.0;
  if (processes) device.machine_ranks = ranks_of_machine(*processes);
  int kHz = 0, bits = 0, has = 0;
  if (cudaDeviceGetAttribute(&kHz, cudaDevAttrMemoryClockRate, number) == cudaSuccess &&
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, number) == cudaSuccess)
    device.memory_GBps = 2.0 * kHz * bits / 8 * 1e-6;  // two transfers a cycle (CUDA C++ Best Practices Guide, 9.2.1)
  // The driver's CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, which the runtime passes on without a name of its own.
  if (cudaDeviceGetAttribute(&has, static_cast<cudaDeviceAttr>(132), number) == cudaSuccess)
    device.multicast = has != 0;
  cudaGetLastError();
  return device;
}

std::vector<OutsidePlan> require_memory(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                                        const std::vector<BoundProgram>& programs, const CudaOptions& options) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  DeviceFacts facts{device.sms, device.machine_ranks, device.multicast};
  if (const char* given = std::getenv("NCCL_BUFFSIZE"))
    if (const std::int64_t bytes = std::strtoll(given, nullptr, 10); bytes > 0) facts.nccl_buffer_bytes = bytes;
  const bool by_nccl = options.processes != nullptr && schedule.mesh.ranks() > 1;
  const std::vector<OutsidePlan> outside_plan =
      memory_outside_plan(schedule, programs.front().rank, facts, by_nccl, options.graphs);
  std::int64_t planned = 0;
  for (const BoundProgram& program : programs) planned += plan.roles[program.role].bytes;
  require_free(device, schedule, plan, programs, planned + sum_of(outside_plan), " (" + text_of(outside_plan) + ")");
  // The used memory includes CUDA's context, and that of other users of the device.
  std::vector<OutsidePlan> all = {
      {"context and others", static_cast<std::int64_t>(total - free), "measured", "cudaMemGetInfo"}};
  if (const std::int64_t driver = device.memory_bytes - static_cast<std::int64_t>(total); driver > 0)
    all.push_back({"kept by the driver", driver, "measured", "NVML's total less cudaMemGetInfo's"});
  all.insert(all.end(), outside_plan.begin(), outside_plan.end());
  return all;
}

void require_free(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                  const std::vector<BoundProgram>& programs, std::int64_t needed, const std::string& what) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  if (needed <= static_cast<std::int64_t>(free)) return;
  const bool is_one = programs.size() == 1;
  const auto GiB = [](auto bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw runtime_failure(fmt::format(
      "out of memory: {} {:.1f} GiB{} of {}'s {:.1f} GiB, {:.1f} GiB of them free; the largest buffers of a rank: "
      "{}{}",
      is_one ? fmt::format("rank {} needs", programs.front().rank) : fmt::format("{} ranks need", programs.size()),
      GiB(needed), what, device.name, GiB(total), GiB(free),
      largest_storages(schedule, plan.roles[programs.front().role]),
      is_one && schedule.mesh.ranks() > 1
          ? "; max_ctas of a group, NCCL_BUFFSIZE and enable_cuda_graph = false make the rest less"
          : ""));
}

}  // namespace stretto::cuda
