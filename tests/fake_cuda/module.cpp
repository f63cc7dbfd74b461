// The other parts of the module are in the libraries that CMake links.
#include <cstdlib>

#include "tests/fake_cuda/cuda_runtime.h"

namespace {

// STRETTO_FAKE_GPU_GIB: the memory of the emulated device, for tests with many ranks at once. It is allocated when it
// is used.
[[maybe_unused]] const bool is_sized = [] {
  if (const char* given = std::getenv("STRETTO_FAKE_GPU_GIB"))
    fake_cuda::device().total_bytes = std::strtoull(given, nullptr, 10) << 30;
  return true;
}();

}  // namespace
