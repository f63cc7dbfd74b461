#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/cuda/module/check.hpp"

namespace stretto::cuda {

// RAII owners of CUDA's handles on the current device. Work that uses a handle must be done before its owner is
// destroyed. Constructors throw Error(runtime) in CUDA's words. Neither copyable nor movable, so that users may keep
// the handle.

// At least one byte, aligned to 256, not initialised.
struct DeviceMemory {
  std::byte* data = nullptr;
  explicit DeviceMemory(std::int64_t bytes) {
    check(cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), "taking memory");
  }
  ~DeviceMemory() { cudaFree(data); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
};
// Memory of the host, zeroed, which the device reads and writes at the same address; at least one byte.
struct PinnedMemory {
  std::byte* data = nullptr;
  explicit PinnedMemory(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, size, cudaHostAllocMapped), "taking memory of the host");
    data = static_cast<std::byte*>(memory);
    std::fill_n(data, size, std::byte{0});
  }
  ~PinnedMemory() { cudaFreeHost(data); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
};
// Lower priorities come first, in the range of cudaDeviceGetStreamPriorityRange(). The stream and the default stream do
// not wait for each other.
struct CudaStream {
  cudaStream_t stream = nullptr;
  explicit CudaStream(int priority) {
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "creating a stream");
  }
  ~CudaStream() { cudaStreamDestroy(stream); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
};
// `timed`: its time can be read, which makes recording it more expensive.
struct CudaEvent {
  cudaEvent_t event = nullptr;
  explicit CudaEvent(bool timed) {
    check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
  }
  ~CudaEvent() { cudaEventDestroy(event); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
};

}  // namespace stretto::cuda
