// Replaces calibrate/probes/gpu_sizes.cpp in the program of the emulated device.
#include "tests/tiny_gpu_sizes.hpp"

namespace stretto::calibrate {

GpuSizes gpu_sizes() { return testing::tiny_gpu_sizes(); }
MinimalSizes minimal_sizes() { return testing::tiny_minimal_sizes(); }

}  // namespace stretto::calibrate
