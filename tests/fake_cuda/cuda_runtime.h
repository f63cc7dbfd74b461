#pragma once
// The calls of the CUDA runtime that exec/cuda/module makes, on the processor. A host thread stands for a process: its
// streams are queues, whose work is done while the thread waits for one of them, as late as a device could. With the
// kernels emulated (tests/emulated_device) the executor itself runs where there is no GPU. A graph is the captured
// calls; a capture fails, as the real one does, when a stream takes part that was not forked from it, or is not joined
// to it again, or when its thread makes a call that is not work for a stream: allocates memory, copies at once, waits.
// Not for kernels: those have device.hpp.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/emulated_device/emulated_device.hpp"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureUnjoined = 904
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;
constexpr unsigned cudaEventRecordDefault = 0, cudaEventRecordExternal = 1, cudaHostAllocMapped = 2;
constexpr unsigned long long cudaGraphInstantiateFlagUseNodePriority = 8;

namespace fake_cuda {
struct Stream;
struct Event {
  bool is_timed = true;
  std::uint64_t recorded = 0, happened = 0;
  std::chrono::steady_clock::time_point at;
  Stream* captured_on = nullptr;  // stream of a capture on which it was recorded, after this much work
  std::size_t behind = 0;
};
struct Stream {
  std::deque<std::function<bool()>> queue;  // each returns whether it is done; the next does not begin before
  // State in a capture.
  bool is_forked = false, is_joined = true;
  std::size_t submitted = 0;
};
using Graph = std::vector<std::function<void()>>;  // the captured calls
struct Process {
  std::vector<Stream*> streams;
  // State of a capture.
  Stream* origin = nullptr;
  std::vector<Stream*> forked;
  Graph calls;
  bool is_broken = false;
  cudaError_t last_error = cudaSuccess;  // kept until it is asked for
  int graphs = 0, graph_launches = 0;
  std::vector<std::unique_ptr<Event>> outlived;  // destroyed before they happened

  // Does the work that can be done; returns whether there was any.
  bool advance() {
    bool any = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (Stream* stream : streams)
        while (!stream->queue.empty() && stream->queue.front()()) {
          stream->queue.pop_front();
          moved = any = true;
        }
    }
    return any;
  }
};
inline Process& process() {
  thread_local Process the_process;
  return the_process;
}
// "Not ready" is kept like any other error.
inline cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) process().last_error = error;
  return error;
}
// Returns whether the call is one that cudaStreamCaptureModeThreadLocal forbids the capturing thread.
inline bool is_forbidden() {
  Process& mine = process();
  if (mine.origin == nullptr) return false;
  mine.is_broken = true;
  keep(cudaErrorStreamCaptureUnsupported);
  return true;
}
// Makes the call now, or when the graph is launched.
inline void call(Stream* stream, std::function<void()> make) {
  Process& mine = process();
  if (mine.origin == nullptr) return make();
  if (!stream->is_forked) mine.is_broken = true;
  stream->is_joined = stream == mine.origin;
  ++stream->submitted;
  mine.calls.push_back(std::move(make));
}
// Submits work that reports when it is done, and is asked repeatedly.
inline void submit(Stream* stream, std::function<std::function<bool()>()> begin) {
  call(stream, [stream, begin] { stream->queue.push_back(begin()); });
}
inline void submit_once(Stream* stream, std::function<void()> work) {
  call(stream, [stream, work] {
    stream->queue.push_back([work] {
      work();
      return true;
    });
  });
}
struct Device {
  std::mutex mutex;  // for ranks on threads
  std::size_t total_bytes = std::size_t{1} << 30, used_bytes = 0;
  int pinned = 0;  // pieces of the host's memory
  std::map<void*, std::size_t> allocations;
  int live_streams = 0, live_events = 0;
  int waits_for_nothing = 0;  // waits for events that were never recorded
  int left_undone = 0;        // work items in streams that were destroyed
  int graphs = 0, graph_launches = 0;
  bool captures = true;  // false: every capture fails
  int sms = 2;
  int driver_version = 13000;
};
inline Device& device() {
  static Device the_device;
  return the_device;
}
}  // namespace fake_cuda

using cudaEvent_t = fake_cuda::Event*;
using cudaStream_t = fake_cuda::Stream*;
using cudaGraph_t = fake_cuda::Graph*;
using cudaGraphExec_t = fake_cuda::Graph*;
struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount;
  int major, minor;
};

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "Fake GPU");
  properties->multiProcessorCount = fake_cuda::device().sms;
  properties->major = properties->minor = 0;
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37 };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMemoryClockRate        ? 1'000'000  // kHz, bits: 16 GB/s
           : attribute == cudaDevAttrGlobalMemoryBusWidth ? 64
                                                          : 0;  // no multicast
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
template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  fake_cuda::Device& device = fake_cuda::device();
  const std::lock_guard lock(device.mutex);
  if (device.used_bytes + bytes > device.total_bytes) return cudaErrorMemoryAllocation;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  device.allocations[memory] = bytes;
  device.used_bytes += bytes;
  *data = static_cast<T*>(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  fake_cuda::Device& device = fake_cuda::device();
  const std::lock_guard lock(device.mutex);
  const auto found = device.allocations.find(data);
  if (found == device.allocations.end()) return cudaSuccess;
  device.used_bytes -= found->second;
  device.allocations.erase(found);
  std::free(data);
  return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  const std::lock_guard lock(fake_cuda::device().mutex);
  ++fake_cuda::device().pinned;
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* data) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  std::free(data);
  const std::lock_guard lock(fake_cuda::device().mutex);
  --fake_cuda::device().pinned;
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  std::memset(data, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new fake_cuda::Stream;
  fake_cuda::process().streams.push_back(*stream);
  stretto::cuda::emulate::set_streams([](void* on, std::function<void()> work) {
    // As in exec/cuda/kernels/launch.hpp: cudaGetLastError() is how <<<>>> reports that it was refused.
    if (std::exchange(fake_cuda::process().last_error, cudaSuccess) != cudaSuccess)
      throw stretto::runtime_failure("launching a kernel: an error of a call before it");
    fake_cuda::submit_once(static_cast<cudaStream_t>(on), std::move(work));
  });
  const std::lock_guard lock(fake_cuda::device().mutex);
  ++fake_cuda::device().live_streams;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::erase(fake_cuda::process().streams, stream);
  const std::lock_guard lock(fake_cuda::device().mutex);
  fake_cuda::device().left_undone += static_cast<int>(stream->queue.size());
  delete stream;
  --fake_cuda::device().live_streams;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  fake_cuda::Process& mine = fake_cuda::process();
  const bool is_done = stream->queue.empty();  // before advancing, so that an immediate question gets "not ready"
  mine.advance();
  return is_done ? cudaSuccess : fake_cuda::keep(cudaErrorNotReady);
}
// Fails when nothing has moved for 20 s.
inline cudaError_t cudaDeviceSynchronize() {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  auto last = std::chrono::steady_clock::now();
  while (true) {
    fake_cuda::Process& mine = fake_cuda::process();
    if (mine.advance()) last = std::chrono::steady_clock::now();
    if (std::all_of(mine.streams.begin(), mine.streams.end(), [](const auto* s) { return s->queue.empty(); }))
      return cudaSuccess;
    if (std::chrono::steady_clock::now() - last > std::chrono::seconds(20)) return cudaErrorNotReady;
    std::this_thread::yield();
  }
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const std::lock_guard lock(fake_cuda::device().mutex);
  *event = new fake_cuda::Event;
  (*event)->is_timed = flags == cudaEventDefault;
  ++fake_cuda::device().live_events;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(fake_cuda::device().mutex);
  --fake_cuda::device().live_events;
  // A recorded event that has not happened is kept until it has.
  std::unique_ptr<fake_cuda::Event> mine(event);
  if (event->happened != event->recorded) fake_cuda::process().outlived.push_back(std::move(mine));
  return cudaSuccess;
}
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  fake_cuda::Process& mine = fake_cuda::process();
  // Only graphs support external events.
  if (flags == cudaEventRecordExternal && mine.origin == nullptr) return cudaErrorInvalidValue;
  fake_cuda::call(stream, [event, stream] {
    const std::uint64_t number = ++event->recorded;
    stream->queue.push_back([event, number] {
      event->happened = number;
      event->at = std::chrono::steady_clock::now();
      return true;
    });
  });
  const bool is_inside = mine.origin != nullptr && flags != cudaEventRecordExternal;
  event->captured_on = is_inside ? stream : nullptr;
  event->behind = stream->submitted;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (fake_cuda::is_forbidden()) return cudaErrorStreamCaptureUnsupported;
  // as with streams: an immediate question gets "not ready"
  const bool is_done = event->happened == event->recorded;
  fake_cuda::process().advance();
  return is_done ? cudaSuccess : fake_cuda::keep(cudaErrorNotReady);
}
// Waits for the latest record at the time of the call.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  fake_cuda::Process& mine = fake_cuda::process();
  if (mine.origin == nullptr) {
    if (event->captured_on != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (event->recorded == 0) ++fake_cuda::device().waits_for_nothing;
  } else {
    // from before the capture, or never recorded
    if (event->captured_on == nullptr) return cudaErrorStreamCaptureUnsupported;
    if (!stream->is_forked) {
      stream->is_forked = true;
      mine.forked.push_back(stream);
    }
  }
  fake_cuda::call(stream, [stream, event] {
    stream->queue.push_back([event, number = event->recorded] { return event->happened >= number; });
  });
  if (mine.origin != nullptr && stream == mine.origin && event->behind == event->captured_on->submitted)
    event->captured_on->is_joined = true;
  return cudaSuccess;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  fake_cuda::Process& mine = fake_cuda::process();
  mine.origin = stream;
  mine.forked = {stream};
  mine.calls.clear();
  mine.is_broken = false;
  stream->is_forked = true;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  fake_cuda::Process& mine = fake_cuda::process();
  cudaError_t error = cudaSuccess;
  if (mine.is_broken || stream != mine.origin || !fake_cuda::device().captures)
    error = cudaErrorStreamCaptureUnsupported;
  for (fake_cuda::Stream* forked : mine.forked) {
    if (!forked->is_joined && forked != mine.origin) error = cudaErrorStreamCaptureUnjoined;
    forked->is_forked = false;
    forked->is_joined = true;
    forked->submitted = 0;
  }
  mine.origin = nullptr;
  if (error != cudaSuccess) return fake_cuda::keep(error);
  ++mine.graphs;
  *graph = new fake_cuda::Graph(std::move(mine.calls));
  const std::lock_guard lock(fake_cuda::device().mutex);
  ++fake_cuda::device().graphs;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* runnable, cudaGraph_t graph, unsigned long long) {
  *runnable = graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t runnable, cudaStream_t) {
  ++fake_cuda::process().graph_launches;
  {
    const std::lock_guard lock(fake_cuda::device().mutex);
    ++fake_cuda::device().graph_launches;
  }
  for (const auto& make : *runnable) make();
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --fake_cuda::process().graphs;
  const std::lock_guard lock(fake_cuda::device().mutex);
  --fake_cuda::device().graphs;
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda::device().driver_version;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return std::exchange(fake_cuda::process().last_error, cudaSuccess); }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
// Every host thread that asks has a device of its own, as processes have.
inline cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int) {
  thread_local int mine = 0;
  std::snprintf(name, static_cast<std::size_t>(bytes), "0000:%p", static_cast<void*>(&mine));
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  fake_cuda::submit_once(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->happened == 0 || end->happened == 0 || !begin->is_timed || !end->is_timed) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}
