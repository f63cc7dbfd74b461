#pragma once
#include <string>

#include "trace/trace.hpp"

namespace stretto::trace {

// Reads a report of Nsight Systems that `nsys export --type sqlite` has written: the tables
// CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME, NVTX_EVENTS and StringIds. All of them
// but the first may be absent. A process and device is a rank, in order of their numbers. Throws Error(input) with the
// file.
TraceFile read_nsight(const std::string& path);

}  // namespace stretto::trace
