#pragma once
#include <cstddef>

#include "exec/cuda/kernels/stream.hpp"

namespace stretto::cuda {

// A lane's cuBLAS workspace, of the size that NVIDIA recommends for Hopper; kernels use it as scratch.
constexpr std::size_t kWorkspace_bytes = std::size_t{32} << 20;
static_assert(kWorkspace_bytes >= kScratch_bytes);

}  // namespace stretto::cuda
