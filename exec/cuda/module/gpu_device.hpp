#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/outside_plan.hpp"

namespace stretto::cuda {

// The device that this process runs on.
struct GpuDevice {
  std::string name;
  int sms = 1;
  // The total of its memory that nvidia-smi shows, from NVML as there. cudaMemGetInfo's total is less by what the
  // driver keeps, some 0.5 GiB. 0: there is no NVML.
  std::int64_t memory_bytes = 0;
  double memory_GBps = 0;          // upper bound: clock times width; 0: not known
  std::int64_t machine_ranks = 1;  // processes on this machine
  double compute_capability = 0;   // 9.0 for H100
  bool multicast = false;          // it has switches that add up and copy to many GPUs (NVLink SHARP)
};

// Makes the device current: the first one, or for processes the one with the rank's number on its machine; all
// processes must call this. Throws Error(runtime), in a line, when there is no driver, one that is too old, or no
// device.
GpuDevice choose_device(launch::ProcessGroup* processes);

// Returns the used memory of the device, and the memory that `programs` will take outside their plans
// (exec/cuda/memory_outside_plan.hpp). Throws Error(runtime) when plans and that memory exceed the free memory.
std::vector<OutsidePlan> require_memory(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                                        const std::vector<BoundProgram>& programs, const CudaOptions& options);

// Throws Error(runtime) when `needed` bytes are not free; the message has the free memory and the largest storages.
// `what` is the purpose of the bytes, used in brackets or after "for".
void require_free(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                  const std::vector<BoundProgram>& programs, std::int64_t needed, const std::string& what);

}  // namespace stretto::cuda
