#include "exec/cuda/module/this_device.hpp"

#include <fmt/format.h>

#include "exec/cuda/module/check.hpp"

namespace stretto::cuda {

std::string this_device() {
  int driver = 0, device = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver");
  check(cudaGetDevice(&device), "asking for the device");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking the device");
  return fmt::format("driver {}, {} ({}.{}, {} SMs)", driver, properties.name, properties.major, properties.minor,
                     properties.multiProcessorCount);
}

}  // namespace stretto::cuda
