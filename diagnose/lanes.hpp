#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "diagnose/period.hpp"
#include "model/schedule/bind.hpp"
#include "trace/trace.hpp"

namespace stretto::diagnose {

constexpr std::int64_t kNoOperation = -1;
constexpr LaneId kNoLane = std::numeric_limits<LaneId>::max();

// One kernel of a period with its operation and lane.
struct PlacedKernel {
  std::uint32_t kernel = 0;        // index into RankTrace::kernels
  std::int64_t op = kNoOperation;  // index into BoundProgram::ops: the first, where the kernel moves a group
  std::uint32_t group = 1;         // number of operations that it moves, consecutive on their lane
  LaneId lane = kNoLane;           // kNoLane: no lane of the schedule is like its stream
  std::uint32_t communicator = kNoCommunicator;  // of a communication, where that is known
  Picoseconds transfer = 0;                      // of a communication: bytes began to move (diagnose/transfers.hpp)
};

// A rank's predicted step: its program and rows (TimelineRow) by operation; null: no row.
struct PredictedRank {
  const BoundProgram* program = nullptr;
  std::vector<const TimelineRow*> rows;
  Picoseconds begin = 0, period = 0;
};

struct PlacedStep {
  std::vector<PlacedKernel> kernels;  // in the order of Period::kernels
  std::vector<std::string> streams;   // what became of each stream: "stream 7: compute"
};

// Matches the kernels of a period to the operations of a rank. The stream with most computation is the compute lane;
// another one with computation is the lane whose kinds are most like it, if there is one. Kernels of one process group
// and kind are on the lane that has most nearly as many operations of that kind with as many bytes. Then every lane is
// aligned (diagnose/alignment.hpp). Operations in a trace of Stretto's are matched by lane and label.
PlacedStep place_kernels(const Schedule& schedule, const PredictedRank& predicted, const trace::RankTrace& trace,
                         const Period& period, bool is_own);

}  // namespace stretto::diagnose
