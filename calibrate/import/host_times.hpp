#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace stretto::calibrate {

// The time that operations of one kind take the process that issues them, in microseconds: from the launch of an
// operation's first kernel to that of the next operation's.
struct HostKindTime {
  const char* kind = "";             // key of [host.us] of a profile: "linear" (docs/profiles.md)
  bool is_backward = false;          // of a kind that has passes, launched by the backward pass
  std::int64_t count = 0;            // gaps
  double us = 0, low = 0, high = 0;  // median, and 10th and 90th percentile
  double kernels = 1;                // of an operation: mean
};

// Calls of one kind of collective.
struct CollectiveOverlap {
  std::string name;  // "reduce_scatter"
  std::int64_t calls = 0;
  double hidden = 0;   // share of their time in which anything computes
  double ctas = 0;     // blocks of its kernels, which hold SMs: median; 0: not known
  double stretch = 0;  // of equal calls: median time concurrent with compute over that alone; 0: not known
};

// The host in a trace of training steps.
struct HostTimes {
  std::vector<HostKindTime> kinds;         // by name, forward before backward
  std::vector<CollectiveOverlap> overlap;  // in the order of trace::KernelClass
  std::int64_t steps = 0;                  // that the program has marked
  std::int64_t syncs = 0;                  // synchronisations of the host with the device
  std::int64_t full = 0;                   // gaps left out, because the queue of launches was full
  std::vector<std::string> unknown;        // what the trace cannot determine, and why
};

// Reads the host of a rank's trace. A gap with a synchronisation, the beginning of a step, or a full queue in it says
// nothing about its operation and is left out.
HostTimes host_times(const trace::RankTrace& trace);

// Returns [host.us] of a profile; `source` names the trace.
std::string host_text(const HostTimes& host, const std::string& source);

}  // namespace stretto::calibrate
