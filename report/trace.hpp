#pragma once
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// One labelled timeline of a trace file: "predicted overlap_grad_reduce, 4 ranks".
struct TraceSection {
  std::string title;
  const Schedule* schedule = nullptr;
  const std::vector<BoundProgram>* programs = nullptr;
  const Timeline* timeline = nullptr;
};

// Writes Chrome trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open. Sections appear from top
// to bottom in the order given (predicted above measured): a process per (section, rank), a thread per lane, a slice
// per operation with its waits as arguments, time 0 at step_begin. Throws Error(runtime) when the file cannot be
// written.
void write_trace(const std::string& path, const std::vector<TraceSection>& sections);

}  // namespace stretto
