#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// One rank's step time, broken down by the definitions of docs/json.md; one function for predicted and measured steps.
// All compute lanes count together: an instant belongs to the first of these categories that holds on one of them.
// compute + core_wait + exposed (per communicator) + queue_wait + bubble = step_end − step_begin.
struct Breakdown {
  Picoseconds compute = 0;  // an operation runs
  // an operation is ready and waits for cores, or the channels of an awaited communication do
  Picoseconds core_wait = 0;
  std::vector<Picoseconds> exposed;  // [communicator]: the next operation waits for that communicator's own transfer
  Picoseconds exposed_total = 0;
  // The next operation, or the communication that it waits for, waits only for its hardware queue: an earlier operation
  // of the queue has not started.
  Picoseconds queue_wait = 0;
  Picoseconds bubble = 0;  // all lanes wait for a peer's compute, for the host, or for nothing
  // The part of the bubble in which the next operation, or the communication that it waits for, waits only to be
  // issued: its waits are met and its lane is free. With a host lane (HostCosts) the process has not issued it yet;
  // without, this is the gap between two operations and the time of waking up.
  Picoseconds host = 0;
};

// Returns one rank's breakdown. `program` must be the BoundProgram of that rank that the rows' `op` index into.
Breakdown breakdown(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline);
// A longer step than the timeline's: the part [begin, begin + period), which lies within the step; after it
// everything is as it was before, comes `times` more.
struct Repeated {
  Picoseconds begin = 0, period = 0;
  std::int64_t times = 0;
  Picoseconds longer() const { return times * period; }
  // Returns how often the longer step has the operation of a row.
  std::int64_t count(const TimelineRow& row) const {
    return 1 + (row.end > begin && row.end <= begin + period ? times : 0);
  }
};

// Returns the mean over the given ranks (rounded to picoseconds), for the timeline's step or a longer one.
Breakdown mean_breakdown(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline,
                         const Repeated& repeated = {});

// Returns the time in which communications move bytes, from when the last member arrived, summed over those of a rank:
// the mean over the given ranks, rounded down. Concurrent communications count each. What of it is not exposed is
// hidden.
Picoseconds active_communication(const Schedule& schedule, const std::vector<BoundProgram>& programs,
                                 const Timeline& timeline, const Repeated& repeated = {});

}  // namespace stretto
