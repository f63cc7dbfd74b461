#pragma once
// As much of the CUDA runtime as exec/cuda/module/executor.cpp calls, on the processor: every call is done when it
// returns, which is one of the orders that a device may choose. With the kernels emulated (exec/cuda/emulate.hpp) the
// executor itself runs where there is no GPU. Not for kernels: those have device.hpp.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNotReady = 600
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;

namespace fake_cuda {
struct Event {
  bool is_recorded = false, is_timed = true;
  std::chrono::steady_clock::time_point at;
};
struct Device {
  std::size_t total_bytes = std::size_t{1} << 30, used_bytes = 0;
  std::map<void*, std::size_t> allocations;
  int live_streams = 0, live_events = 0;
  int waits_for_nothing = 0;  // waits for events that were never recorded
};
inline Device& device() {
  static Device the_device;
  return the_device;
}
}  // namespace fake_cuda

using cudaEvent_t = fake_cuda::Event*;
using cudaStream_t = int*;
struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount;
};

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "Fake GPU");
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = fake_cuda::device().total_bytes;
  *free = *total - fake_cuda::device().used_bytes;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  fake_cuda::Device& device = fake_cuda::device();
  if (device.used_bytes + bytes > device.total_bytes) return cudaErrorMemoryAllocation;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  device.allocations[memory] = bytes;
  device.used_bytes += bytes;
  *data = static_cast<T*>(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
  fake_cuda::Device& device = fake_cuda::device();
  const auto found = device.allocations.find(data);
  if (found == device.allocations.end()) return cudaSuccess;
  device.used_bytes -= found->second;
  device.allocations.erase(found);
  std::free(data);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new int(0);
  ++fake_cuda::device().live_streams;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  --fake_cuda::device().live_streams;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new fake_cuda::Event;
  (*event)->is_timed = flags == cudaEventDefault;
  ++fake_cuda::device().live_events;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --fake_cuda::device().live_events;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->is_recorded = true;
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  fake_cuda::device().waits_for_nothing += !event->is_recorded;
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->is_recorded || !end->is_recorded || !begin->is_timed || !end->is_timed) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}
