#pragma once
#include <cstdint>
#include <vector>

#include "model/schedule/outside_plan.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::cuda {

// Facts about a device that are known before anything runs on it.
struct DeviceFacts {
  int sms = 0;
  std::int64_t machine_ranks = 1;  // ranks that reach each other's memory: in an NVLink domain, or on a machine
  bool multicast = false;          // it has switches that add up (NVLink SHARP), for which NCCL allocates buffers
  std::int64_t nccl_buffer_bytes = std::int64_t{4} << 20;  // NCCL_BUFFSIZE
};

// Returns the memory of a device outside the plans of its ranks, for which `rank` stands: workspaces of lanes, NCCL's
// buffers where each rank has a device (`by_nccl`), the nodes of the step's graph (`graphs`). In this order, without
// entries of 0 bytes. CUDA's context is context_outside_plan(). Where another framework runs the step (`by_framework`),
// lanes have cuBLAS's workspace alone, and not the scratch in which our products of codes lay out their operands.
//
// NCCL's sizes follow the source of 2.28.9; they count the buffers that it opens in any case, and so are rather low.
// With the context they come to 1.00 GB for collectives among 8 H100 and 3.82 with all-to-alls, where 1.06 and 4.34
// were reported (github.com/NVIDIA/nccl/issues/1685).
std::vector<OutsidePlan> memory_outside_plan(const Schedule& schedule, std::int64_t rank, const DeviceFacts& device,
                                             bool by_nccl, bool graphs, bool by_framework = false);

// Returns the memory of CUDA's context on a device of `sms` SMs, before kernels are loaded.
OutsidePlan context_outside_plan(int sms);

// Returns NCCL's part of memory_outside_plan(), on one rank.
std::int64_t nccl_bytes(const Schedule& schedule, std::int64_t rank, const DeviceFacts& device);

// Returns "CUDA context 0.40 GiB (published), NCCL 0.53 GiB (published)".
std::string text_of(const std::vector<OutsidePlan>& parts);

}  // namespace stretto::cuda
