#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace stretto::diagnose {

// One step in a trace.
struct Period {
  Picoseconds begin = 0, end = 0;      // the step: from its first kernel to the next step's
  std::vector<std::uint32_t> kernels;  // indices into RankTrace::kernels, in order of start
  bool is_whole = false;               // false: no period was found, and this is all of the trace
};

// Finds the steps of a rank: those that the program has marked, to which a kernel belongs when it was launched in them;
// else the repetitions of the sequence of kernels on the stream that computes most, cut after the optimizer's kernels
// where there are any. Of several steps the first is left out, because it warms up. At least one.
std::vector<Period> find_periods(const trace::RankTrace& trace);

// Returns all of a trace, which then is an excerpt of a step.
Period all_of(const trace::RankTrace& trace);

// Returns the stream with most time of computation.
std::uint32_t compute_stream(const trace::RankTrace& trace);

}  // namespace stretto::diagnose
