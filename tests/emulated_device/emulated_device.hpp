#pragma once
// A GPU's threads on one processor. exec/cuda/device.hpp includes this file where the compiler is not nvcc, and only
// tests compile kernels that way. Blocks run one after the other. So do the threads of a block, each until it ends or
// waits for others; a waiting thread keeps its stack. Results of kernels are exact, and so are barriers: a barrier that
// not all threads of the block reach, or a shuffle that not all lanes of the warp join, is an error and not a hang.
// Host threads that launch concurrently wait for each other.
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bf16.hpp"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __restrict__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace stretto::cuda::emulate {

// Values of the running thread; read and called only inside run().
inline dim3 thread_index, block_index, block_size, grid_size;
inline int lane = 0;  // number of the thread in its warp
void sync_threads();  // returns when all threads of the block have called it
// Returns the value that lane `from` of this warp passes; returns when all lanes have called it.
std::uint64_t shuffle(std::uint64_t value, int from);

template <class T>
T shuffled(T value, int from) {
  // The built-in needs no call and no address, which costs AddressSanitizer time; std::bit_cast takes an address.
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return __builtin_bit_cast(T, static_cast<Bits>(shuffle(__builtin_bit_cast(Bits, value), from)));
}

// Makes run() throw at the end when an address is not a multiple of the size that is read or written there at once.
inline bool is_misaligned = false;
inline void check_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) is_misaligned = true;
}

// Does `work` now, or passes it to the streams, when it is for one of them (tests/fake_cuda).
void submit(void* stream, std::function<void()> work);
using Streams = std::function<void(void* stream, std::function<void()> work)>;
void set_streams(Streams streams);  // for this host thread

// Calls `thread`, which must not throw, once for every thread of every block. __shared__ variables are shared by all
// blocks and keep their last values, as a device's may. Throws Error(runtime) when threads wait for each other in vain,
// for addresses that are not aligned, and for a grid or blocks that a device refuses (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"): more than 1,024 threads, or 65,535 blocks along y.
void run(dim3 grid, dim3 block, const std::function<void()>& thread);

// Threads of an SM that registers permit (65,536 of them, 32 a thread); a test may lower it for a kernel that takes
// more.
inline int threads_of_sm = 2048;
constexpr int kBlocksOfSm = 32;
inline int resident_blocks_of_sm(unsigned threads) {
  const int fit = threads_of_sm / static_cast<int>(threads);
  return fit < kBlocksOfSm ? fit : kBlocksOfSm;
}
// The launches of this host thread, while a test points to a list.
struct Launch {
  dim3 grid, block;
};
inline thread_local std::vector<Launch>* launches = nullptr;

// Starts a kernel with copies of the arguments. Without streams, the kernel has run when this returns.
template <class... Parameters, class... Arguments>
void launch(void* stream, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (launches != nullptr) launches->push_back({grid, block});
  submit(stream, [grid, block, kernel, ... copies = std::decay_t<Arguments>(arguments)] {
    run(grid, block, [&] { kernel(copies...); });
  });
}

}  // namespace stretto::cuda::emulate

#define threadIdx (::stretto::cuda::emulate::thread_index)
#define blockIdx (::stretto::cuda::emulate::block_index)
#define blockDim (::stretto::cuda::emulate::block_size)
#define gridDim (::stretto::cuda::emulate::grid_size)
inline void __syncthreads() { stretto::cuda::emulate::sync_threads(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return stretto::cuda::emulate::shuffled(value, stretto::cuda::emulate::lane ^ mask);
}
// Lanes below `delta` get their own value.
template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  const int lane = stretto::cuda::emulate::lane;
  return stretto::cuda::emulate::shuffled(value, lane < delta ? lane : lane - delta);
}
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}
// Threads run one after the other.
inline float atomicAdd(float* to, float value) {
  const float before = *to;
  *to += value;
  return before;
}
inline float __expf(float x) { return std::exp(x); }
using std::exp;
using std::log;
using std::sqrt;
