#pragma once
#include <vector>

#include "diagnose/measured.hpp"
#include "report/excerpt.hpp"
#include "report/trace.hpp"

namespace stretto::diagnose {

// The measured steps as rows of the schedule, and the kernels that belong to no operation.
struct MeasuredTimeline {
  BoundStep step;  // programs of the traced ranks; without partners of messages
  Timeline timeline;
  std::vector<TraceExtra> extra;
};
// Times count from the beginning of each rank's step; clocks of ranks are set against each other where they are known.
MeasuredTimeline timeline_of(const Schedule& schedule, const std::vector<MeasuredRank>& ranks);

// Returns the excerpt of the measured steps, with the kernels that belong to no operation on lanes of their own.
TimelineExcerpt excerpt_of(const Schedule& schedule, const MeasuredTimeline& measured, const ExcerptLimits& limits);

}  // namespace stretto::diagnose
