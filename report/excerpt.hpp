#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"
#include "report/stage_bars.hpp"

namespace stretto {

// An operation as a reader names it; all ranks that run it share one entry.
struct ExcerptLabel {
  std::string name, work;  // "h.3 fc1.dgrad mb 0", "gemm 512x256x1024 nn"
  Phase phase = Phase::forward;
  std::string communicator = {};  // "": it computes
};

// One operation on one rank. Times count from the beginning of the step; those of operations that reach over from the
// step before are negative.
struct ExcerptSlice {
  std::uint32_t label = 0;  // into TimelineExcerpt::labels
  LaneId lane = 0;
  Picoseconds start = 0, transfer = 0, end = 0;  // as in TimelineRow
};

struct ExcerptTrack {
  std::int64_t rank = 0;
  std::string role;
  std::vector<ExcerptSlice> slices;  // by (lane, start)
};

// The part of a timeline that fits on a page. It has its own names and refers to no schedule. A value type.
struct TimelineExcerpt {
  Picoseconds step = 0;
  std::vector<StageTrack> stages;  // all of the step, in bars
  bool all_bars = true;            // false: of every stage only the bars that come first
  std::vector<std::string> lanes;
  std::vector<ExcerptLabel> labels;
  std::vector<ExcerptTrack> tracks;                // by rank
  std::int64_t all_ranks = 0, all_operations = 0;  // of the timeline that this is an excerpt of

  // The ranks that are shown are not whole: shown is what starts in `window`, from the beginning of the step.
  bool cut_in_time = false;
  Picoseconds window_begin = 0, window_end = 0;

  std::int64_t operations() const;
  bool complete() const { return operations() == all_operations; }
};

struct ExcerptLimits {
  std::int64_t operations = 20'000;
  std::int64_t ranks = 32;
  std::int64_t bars = 100'000;
};
// For a page that shows so many timelines: all of them together stay below 100,000 operations and 100,000 bars.
ExcerptLimits limits_of_page(std::size_t timelines);

// Whole ranks, the first of every role, then the second of every role, and so on while the limits allow. Where the
// first ranks of all roles together exceed them: of each of these, what starts around the middle of the step, between
// the same two instants. At least one rank is in it when the timeline has any.
TimelineExcerpt excerpt(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                        const ExcerptLimits& limits = {});

}  // namespace stretto
