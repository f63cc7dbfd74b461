#pragma once
// The language of the kernels. nvcc compiles them for the GPU. Tests compile the same files with any C++ compiler and
// put a header of their own in place of the device (tests/emulated_device), so that arithmetic, indexing and barriers
// of every kernel are tested where there is no GPU. Kernels use what both have: threadIdx and the like, __shared__,
// __syncthreads, __shfl_xor_sync.
#include <cstddef>
#include <cstdint>

#include "exec/cuda/kernels/stream.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#else
#include <emulated_device.hpp>  // tests/emulated_device, on the include path of that build alone
#endif

namespace stretto::cuda {

#if defined(__CUDACC__)
using bf16 = __nv_bfloat16;
__host__ __device__ inline float widened(bf16 value) { return __bfloat162float(value); }
__host__ __device__ inline bf16 to_nearest(float value, bf16) { return __float2bfloat16_rn(value); }
#else
using bf16 = Bf16;
inline float widened(bf16 value) { return to_float(value); }
inline bf16 to_nearest(float value, bf16) { return to_bf16(value); }
#endif
__host__ __device__ inline float widened(float value) { return value; }
__host__ __device__ inline float to_nearest(float value, float) { return value; }
template <class T>
__host__ __device__ T rounded(float value) {
  return to_nearest(value, T{});
}

constexpr int kWarp = 32;

// N elements, a power of two and at most 16 bytes, that are read or written at once. Their address must be a multiple
// of their size together: callers choose an N for which it is (is_packable in map.hpp).
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int N, class T>
__device__ void load(float (&to)[N], const T* from) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widened(pack.at[i]);
}
template <int N, class T>
__device__ void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = rounded<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Over the lanes of a warp, all of which must call it; every lane gets the result. The order is fixed, so that
// equal values give equal bits; double is for sums over a whole gradient.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
__device__ inline double warp_sum(double value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
// A NaN anywhere is the result.
__device__ inline float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// Over the threads of a one-dimensional block of whole warps, all of which must call it; every thread gets the result.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T of_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // those before may still be reading
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? of_warp[lane] : T(0));
}
__device__ inline float block_max(float value) {
  __shared__ float of_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_max(value);
  __syncthreads();
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return warp_max(of_warp[lane < warps ? lane : 0]);
}

}  // namespace stretto::cuda
