#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "exec/cuda/cuda.hpp"
#include "model/schedule/beside_plan.hpp"
#include "model/schedule/bind.hpp"

namespace stretto::cuda {

// The device that this process runs on.
struct GpuDevice {
  std::string name;
  int sms = 1;
  double memory_GBps = 0;          // at most: clock times width; 0: not known
  std::int64_t machine_ranks = 1;  // processes on this machine
  double compute_capability = 0;   // 9.0 of H100
  bool multicast = false;          // has switches that add up and copy to many (NVLink SHARP)
};

// Makes the device current: the first, or of processes the one of the rank's number on its machine, all of which must
// call this. Throws Error(runtime), in a line: there is no driver, one too old, or no device.
GpuDevice choose_device(launch::ProcessGroup* processes);

// What of the device's memory is taken, and what `programs` will take beside their plans (exec/cuda/memory_beside.hpp).
// Throws Error(runtime) when plans and that are more than is free.
std::vector<BesidePlan> require_memory(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                                       const std::vector<BoundProgram>& programs, const CudaOptions& options);

// Throws Error(runtime) when `needed` bytes are not free: how much there is, and the largest storages. `what`: in
// brackets or behind "for", what they are for.
void require_free(const GpuDevice& device, const Schedule& schedule, const MemoryPlan& plan,
                  const std::vector<BoundProgram>& programs, std::int64_t needed, const std::string& what);

}  // namespace stretto::cuda
