#pragma once
#include <cuda_runtime.h>

#include <string>

#include "base/error.hpp"

namespace stretto::cuda {

// Throws Error(runtime) "CUDA: WHAT: REASON" if `error` is a failure. `what` names the action for a user, such as a
// call or a kernel. Errors of asynchronous work may be reported by a later call.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw runtime_failure(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace stretto::cuda
