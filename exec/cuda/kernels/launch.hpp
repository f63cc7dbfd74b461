#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "exec/cuda/device.hpp"

namespace stretto::cuda {

// Threads of a block where a kernel has no reason for another number.
constexpr unsigned kThreads = 256;

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Starts a kernel on the stream, with no dynamic shared memory; a grid without blocks does nothing. Arguments are
// copied when this returns. Throws Error(runtime) when the launch itself is refused; later errors show at the next
// synchronisation.
template <class... Parameters, class... Arguments>
void launch(const Stream& stream, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
#if defined(__CUDACC__)
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream.stream)>>>(std::forward<Arguments>(arguments)...);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw runtime_failure(std::string("launching a kernel: ") + cudaGetErrorString(error));
#else
  emulate::launch(stream.stream, grid, block, kernel, std::forward<Arguments>(arguments)...);
#endif
}

// Returns how many blocks of `threads` threads, without dynamic shared memory, the device holds at once: a grid of that
// many has no second wave. At least 1. The kernel's registers and shared memory decide, so the number is equal wherever
// this program runs on such a device. Throws Error(runtime) in CUDA's words.
template <class... Parameters>
std::int64_t resident_blocks(const Stream& stream, void (*kernel)(Parameters...), unsigned threads) {
#if defined(__CUDACC__)
  // A process has one device, so the number is kept.
  thread_local std::map<std::pair<const void*, unsigned>, int> of_sm;
  const auto [known, fresh] = of_sm.try_emplace({reinterpret_cast<const void*>(kernel), threads}, 0);
  if (fresh)
    if (const cudaError_t error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&known->second, kernel, static_cast<int>(threads), 0);
        error != cudaSuccess) {
      of_sm.erase(known);
      cudaGetLastError();
      throw runtime_failure(std::string("asking how much of a kernel fits: ") + cudaGetErrorString(error));
    }
  const int blocks = known->second;
#else
  static_cast<void>(kernel);
  const int blocks = emulate::resident_blocks_of_sm(threads);
#endif
  return std::max<std::int64_t>(1, std::int64_t{blocks} * stream.sms);
}

// Rows of a matrix, `ld` elements apart; 0 when all rows are one.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t ld = 0;
  __device__ T* row(std::int64_t i) const { return data + i * ld; }
};

// Blocks of `block` threads for a matrix; each thread takes one column at a time of several rows: columns along
// x, rows along y, in steps of the grid. Kernels check the column themselves, and step to the rows beyond the grid.
struct Tiling {
  dim3 grid, block;
};
inline Tiling tile(std::int64_t rows, std::int64_t cols) {
  unsigned x = kWarp;
  while (x < kThreads && x < cols) x *= 2;
  const unsigned y = kThreads / x;
  constexpr std::int64_t most = 65535;  // limit of a grid's y
  return {{static_cast<unsigned>(ceil_div(cols, x)), static_cast<unsigned>(std::min(ceil_div(rows, y), most)), 1},
          {x, y, 1}};
}

}  // namespace stretto::cuda
