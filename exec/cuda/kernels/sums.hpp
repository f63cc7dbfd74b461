#pragma once
#include "exec/cuda/kernels/launch.hpp"

namespace stretto::cuda {

// *sum += factor · Σ x[i], in f64. The order depends only on `count` and the block's size, so equal launches give equal
// bits. Launch exactly one block of whole warps. `x` has `count` contiguous elements; x and sum are borrowed device
// memory.
template <class T>
__global__ void add_sum_kernel(const T* x, std::int64_t count, double factor, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += static_cast<double>(x[i]);
  const double total = block_sum(own);
  if (threadIdx.x == 0) *sum += factor * total;
}

}  // namespace stretto::cuda
