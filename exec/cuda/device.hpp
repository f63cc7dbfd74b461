#pragma once
// Device functions that all kernels share. nvcc compiles kernels for the GPU; tests compile the same files with any C++
// compiler against an emulated device (tests/emulated_device), so that arithmetic, indexing and barriers are tested
// without a GPU. Kernels may use only what both provide: threadIdx and the like, __shared__, __syncthreads,
// __shfl_xor_sync, atomicAdd. A warp has kWarp threads. Functions are for the threads of one kernel; they report no
// errors.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/cuda/kernels/stream.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#else
#include <emulated_device.hpp>  // tests/emulated_device, which is on the include path only of that build
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
// Bytes that kernels move.
__host__ __device__ inline float widened(unsigned char value) { return static_cast<float>(value); }
__host__ __device__ inline unsigned char to_nearest(float value, unsigned char) {
  return static_cast<unsigned char>(value);
}
template <class T>
__host__ __device__ T rounded(float value) {
  return to_nearest(value, T{});
}

constexpr int kWarp = 32;

// Threads that an SM holds (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#if defined(__CUDA_ARCH__) && \
    ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || (__CUDA_ARCH__ >= 1100 && __CUDA_ARCH__ < 1300))
constexpr int kThreadsOfSm = 1536;  // GPUs that are not for data centres, and Thor
#else
constexpr int kThreadsOfSm = 2048;
#endif

// N elements that one instruction reads or writes: N is a power of two, at most 16 bytes in all. The address must be a
// multiple of the pack's size; callers choose N accordingly (is_packable in map.hpp).
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
// Returns the pack at an address. A device reports an address that is not aligned and runs nothing more; the emulated
// device reports it too, although the processor could read it.
template <class P, class Address>
__device__ P* pack_at(Address* address) {
#if !defined(__CUDACC__)
  emulate::check_aligned(address, sizeof(P));
#endif
  return reinterpret_cast<P*>(address);
}
// load() widens N elements to f32, and store() rounds them once to nearest, ties to even. Both access the
// whole pack with one instruction, so the address must be aligned to it.
template <int N, class T>
__device__ void load(float (&to)[N], const T* from) {
  const Pack<T, N> pack = *pack_at<const Pack<T, N>>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widened(pack.at[i]);
}
template <int N, class T>
__device__ void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = rounded<T>(from[i]);
  *pack_at<Pack<T, N>>(to) = pack;
}

// Reductions over the lanes of a warp. All lanes must call them, and all get the result. The order is fixed, so equal
// inputs give equal bits. double is for sums over a whole gradient.
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
// Returns the maximum, NaN if either is NaN.
__device__ inline float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return a > b || a != a ? a : b;
#endif
}
// Returns 2^x within 2^-22 of it, and 0 below the least normal number: one instruction, where exp2f() takes four.
__device__ inline float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return x < -126 ? 0 : std::exp2(x);
#endif
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// Reductions over a one-dimensional thread block of whole warps. All threads must call them, and all get the result.
// Returns Σ value over the block, in a fixed order: within each warp, then over the warps.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T of_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // threads may still be reading the previous call's values
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? of_warp[lane] : T(0));
}
// Returns the maximum over the block; NaN if any value is NaN.
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
