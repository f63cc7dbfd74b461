#pragma once
#include <string>
#include <vector>

#include "diagnose/gap.hpp"
#include "sim/platform.hpp"

namespace stretto::diagnose {

// Traces of one run, a section of them if Stretto has written them.
struct Traces {
  trace::Origin origin = trace::Origin::kineto;
  trace::Section section;
};
// Reads the files of trace::trace_files(). `rank`: of a trace that does not say it, below 0: not given. `section`: a
// part of the title of the section to take, where the file has several; by default the measured one. Throws
// Error(input) for bad traces, for traces of several kinds together, and where the section is not the only one.
Traces read_traces(const std::vector<std::string>& files, std::int64_t rank, const std::string& section);

// A part of a trace, in milliseconds from its first kernel on.
struct Window {
  double begin_ms = 0, end_ms = 0;
};
// Reads "BEGIN:END". Throws Error(input) with the text for anything else than two numbers, the first the smaller.
Window parse_window(const std::string& text);
// Leaves out what does not run within the window of each rank, marks of steps too: what remains is an excerpt. Throws
// Error(input) for a trace of Stretto's, and where no kernel remains.
void keep_window(Traces& traces, const Window& window);

// Throws Error(input) where a trace names another model of a GPU than the platform: every kernel would be a gap.
void require_same_gpu(const Traces& traces, const sim::Platform& platform);

// A run explained. Refers to the prediction and the traces, which must outlive it.
struct Diagnosed {
  std::vector<MeasuredRank> ranks;
  Diagnosis diagnosis;
};
// Throws Error(input) where the traces do not fit the scenario (explain()). `on_gpu`: the device of the run, for
// advice.
Diagnosed diagnose(const predict::PredictedStep& step, const Traces& traces, const std::string& scenario,
                   bool on_gpu = true);

}  // namespace stretto::diagnose
