#pragma once
#include <cuda_runtime.h>

#include <string>

#include "base/error.hpp"

namespace stretto::cuda {

// Throws Error(runtime) that names the failed action.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw runtime_failure(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace stretto::cuda
