#pragma once
#include "exec/cuda/device.hpp"

namespace stretto::cuda {

// Returns the sum of `value` over the threads of the block before this one, and in `total` that over all. For a
// one-dimensional block of whole warps. All threads of the block must call it.
__device__ inline int sum_before(int value, int& total) {
  __shared__ int of_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  int sum = value;
#pragma unroll
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, delta);
    if (lane >= delta) sum += other;
  }
  __syncthreads();  // threads may still be reading the previous call's values
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  return before + sum - value;
}

// Calls put(i, value(i), sum of the values before i) for i < count, in the block's order; returns the sum of all.
template <class Value, class Put>
__device__ std::int64_t scan(std::int64_t count, Value value, Put put) {
  std::int64_t sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += blockDim.x) {
    const std::int64_t i = begin + threadIdx.x;
    const int own = i < count ? value(i) : 0;
    int total = 0;
    const int before = sum_before(own, total);
    if (i < count) put(i, own, sum + before);
    sum += total;
  }
  return sum;
}

}  // namespace stretto::cuda
