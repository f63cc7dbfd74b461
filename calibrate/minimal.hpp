#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "calibrate/import/import_platform.hpp"
#include "calibrate/probes/gpu.hpp"

namespace stretto::calibrate {

struct MinimalSizes {
  GemmShape gemm;           // halved until it fits in the memory, like the copied buffer
  std::int64_t copied = 0;  // bf16 elements
  int repeats = 0;          // repeats of the copy and of the chain of small kernels
  double seconds = 0;       // duration of the repeated GEMM
};
// Returns sizes for GPUs of the H100's class, which take less than a minute.
MinimalSizes minimal_sizes();

// Measures the GPU and replaces three numbers of the platform: gemm_sustained, the time of a bf16 GEMM of random
// numbers in the last third of `seconds` / the time in the platform's table; hbm_share, the rate of a copy's reads and
// writes / hbm_GBps; kernel_us, the mean time of a small kernel in a chain. The interval of each is the spread of its
// repetitions; it does not cover other shapes and other GPUs. `progress` gets a line as each probe goes on, and may
// throw to end it.
//
// Throws Error(input) for a platform without a table of GEMMs, and for one whose hbm_GBps is less than the measured
// rate; Error(runtime) as make_cuda_executor() does.
void measure_minimal(const Machine& machine, const MinimalSizes& sizes, ImportedPlatform& platform,
                     const std::function<void(const std::string&)>& progress);

}  // namespace stretto::calibrate
