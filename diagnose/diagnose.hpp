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
