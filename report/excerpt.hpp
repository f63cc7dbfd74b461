#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"
#include "report/stage_bars.hpp"

namespace stretto {

// An operation's name for readers; all ranks that run it share one entry.
struct ExcerptLabel {
  std::string name, work;  // "h.3 fc1.dgrad mb 0", "gemm 512x256x1024 nn"
  Phase phase = Phase::forward;
  std::string communicator = {};  // "": a compute operation
  std::string exchange = {};      // of rows of experts: "dispatch", "combine"
};

// One operation on one rank. Times count from the beginning of the step; operations that began in the previous step
// have negative times.
struct ExcerptSlice {
  std::uint32_t label = 0;  // index into TimelineExcerpt::labels
  LaneId lane = 0;
  Picoseconds start = 0, transfer = 0, end = 0;  // as in TimelineRow
};

struct ExcerptTrack {
  std::int64_t rank = 0;
  std::string role;
  std::vector<ExcerptSlice> slices;  // sorted by (lane, start)
};

// The part of a timeline that fits on a page. It has its own names and refers to no schedule. A value type.
struct TimelineExcerpt {
  Picoseconds step = 0;
  std::vector<StageTrack> stages;  // the whole step as bars
  bool all_bars = true;            // false: only the first bars of every stage
  std::vector<std::string> lanes;
  std::vector<ExcerptLabel> labels;
  std::vector<ExcerptTrack> tracks;                // sorted by rank
  std::int64_t all_ranks = 0, all_operations = 0;  // numbers of the whole timeline

  // The shown ranks are incomplete: only operations that start in the window are shown. The window counts from the
  // beginning of the step.
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
// Returns limits for a page with this many timelines: all of them together stay below 100,000 operations and 100,000
// bars.
ExcerptLimits limits_of_page(std::size_t timelines);

// Returns whole ranks: the first of every role, then the second of every role, and so on while the limits allow. Where
// the first ranks of all roles together exceed the limits, each of them keeps only the operations that start around the
// middle of the step, between two instants that are equal for all. The excerpt has at least one rank when the timeline
// has any.
TimelineExcerpt excerpt(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                        const ExcerptLimits& limits = {});

}  // namespace stretto
