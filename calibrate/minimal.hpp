#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "calibrate/import/import_platform.hpp"
#include "calibrate/probes/gpu.hpp"

namespace stretto::calibrate {

struct MinimalSizes {
  GemmShape gemm;           // halved until it fits in the memory, as is what is copied
  std::int64_t copied = 0;  // elements, bf16
  int repeats = 0;          // of the copy and of the chain of small kernels
  double seconds = 0;       // the GEMM is repeated for
};
// For GPUs of the H100's class, in under a minute.
MinimalSizes minimal_sizes();

// Measures the GPU and replaces three numbers of the platform: gemm_sustained, the time of a bf16 GEMM of random
// numbers in the last third of `seconds` over that of the platform's table; hbm_share, what a copy reads and writes
// over hbm_GBps; kernel_us, the mean time of a small kernel in a chain. The interval of each is the spread of its
// repetitions: what other shapes and other GPUs take is not in it. `progress` gets a line as each probe goes on, and
// may throw to end it.
//
// Throws Error(input) for a platform without a table of GEMMs, and for one whose hbm_GBps is less than what was
// measured; Error(runtime) as make_cuda_executor() does.
void measure_minimal(const Machine& machine, const MinimalSizes& sizes, ImportedPlatform& platform,
                     const std::function<void(const std::string&)>& progress);

}  // namespace stretto::calibrate
