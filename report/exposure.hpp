#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/timeline.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Where the step of one rank went, by the definitions of json-contract: the same function for predicted and measured.
// Times of the compute lane between step_begin and step_end add up:
//   compute + core_wait + exposed (per communicator) + bubble = step_end − step_begin.
struct Breakdown {
  Picoseconds compute = 0;           // compute operations running
  Picoseconds core_wait = 0;         // compute, or the channels of what it waits for, ready and waiting for cores
  std::vector<Picoseconds> exposed;  // [communicator]: the compute lane waits for that communication's own transfer
  Picoseconds exposed_total = 0;
  Picoseconds bubble = 0;  // the compute lane waits for a peer's compute, for the host, or for nothing
};

// One rank's breakdown. `program` must be the BoundProgram of that rank that the rows' `op` index into.
Breakdown breakdown(const Schedule& schedule, const BoundProgram& program, const Timeline& timeline);
// Mean over the given ranks (rounded to picoseconds).
Breakdown mean_breakdown(const Schedule& schedule, const std::vector<BoundProgram>& programs, const Timeline& timeline);

}  // namespace stretto
