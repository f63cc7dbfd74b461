#pragma once
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// A slice of a rank that is no operation of the schedule, such as a kernel of a framework's.
struct TraceExtra {
  std::int64_t rank = 0;
  std::string lane, name;  // lanes of these slices are below those of the schedule
  Picoseconds start = 0, end = 0;
};

// One labelled timeline of a trace file: "predicted overlap_grad_reduce, 4 ranks".
struct TraceSection {
  std::string title;
  const Schedule* schedule = nullptr;
  const BoundStep* step = nullptr;  // the step of the timeline
  const Timeline* timeline = nullptr;
  const std::vector<TraceExtra>* extra = nullptr;  // null: none
};

// Writes Chrome trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open. Sections appear from top
// to bottom in the given order (predicted above measured): a process per (section, rank), a thread per lane, a slice
// per operation with its waits, and for communication the bytes that the rank sends and their rate, as arguments; an
// arrow from the send of a message to its receive, where the step has the partners of messages; where forward and
// backward passes run together, a thread for each direction with a slice a pass (stage_bars()); a counter of the bytes
// that a rank's buffers hold. Time 0 is the start of the section's first operation, and a mark shows where the step
// begins. Throws Error(runtime) when the file cannot be written.
void write_trace(const std::string& path, const std::vector<TraceSection>& sections);

}  // namespace stretto
