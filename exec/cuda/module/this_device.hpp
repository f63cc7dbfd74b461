#pragma once
#include <string>

namespace stretto::cuda {

// Returns the driver and the current device, as far as the choice of a library's kernels depends on them: a device with
// another name or size has other kernels. "driver 13000, NVIDIA H100 80GB HBM3 (9.0, 132 SMs)". Throws Error(runtime)
// in CUDA's words.
std::string this_device();

}  // namespace stretto::cuda
