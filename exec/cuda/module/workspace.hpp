#pragma once
#include <cstddef>

#include "exec/cuda/kernels/stream.hpp"

namespace stretto::cuda {

// Of a lane: cuBLAS's workspace, of the size that NVIDIA recommends for Hopper, which kernels have as their scratch.
constexpr std::size_t kWorkspace_bytes = std::size_t{32} << 20;
static_assert(kWorkspace_bytes >= kScratch_bytes);

}  // namespace stretto::cuda
