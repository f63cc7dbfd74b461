#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// One rank's step time, broken down by the definitions of docs/json.md; the same function for predicted and measured.
// All compute lanes count together: an instant belongs to the first of these categories that holds on one of them.
//   compute + core_wait + exposed (per communicator) + queue_wait + bubble = step_end − step_begin.
struct Breakdown {
  Picoseconds compute = 0;           // an operation runs
  Picoseconds core_wait = 0;         // one is ready and waits for cores, or the channels of what it waits for do
  std::vector<Picoseconds> exposed;  // [communicator]: the next operation waits for that communicator's own transfer
  Picoseconds exposed_total = 0;
  // The next operation, or the communication that it waits for, waits for nothing but its hardware queue: something was
  // issued to the queue before it and has not started.
  Picoseconds queue_wait = 0;
  Picoseconds bubble = 0;  // all wait for a peer's compute, for the host, or for nothing
  // The part of the bubble in which the next operation, or the communication that it waits for, waits for nothing but
  // to be issued: what it waits for is over and its lane is free. With a host lane (HostCosts) the process has not
  // issued it yet; without, that is the time between two operations and that of waking up.
  Picoseconds host = 0;
};

// One rank's breakdown. `program` must be the BoundProgram of that rank that the rows' `op` index into.
Breakdown breakdown(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline);
// Mean over the given ranks (rounded to picoseconds).
Breakdown mean_breakdown(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline);

}  // namespace stretto
