#pragma once
#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

// Probes are Schedules: built here, verified, run by the same executor as everything else, timed by the same Timeline.
// Each file holds one probe; adding one is a file and a line in calibrate.cpp.

// Whole training steps of small models of many shapes on one rank: GEMMs, attention, memory-bound operations and the
// optimizer as they occur, behind the operations that really precede them and with the caches as these leave them.
// One sample per operation template and shape.
std::vector<Sample> probe_steps(const std::function<void(const std::string&)>& progress);

// The same with `ranks` ranks that communicate at the end of each step only, on `cores` cores; samples of ranks sharing a
// device. Compared with probe_steps they show what sharing costs.
std::vector<Sample> probe_shared_steps(int ranks, int cores);
std::vector<Sample> probe_unshared_steps();  // the same shapes on one rank

// Collectives over sizes and group sizes on links that are not paced: what moving the bytes costs a core.
std::vector<Sample> probe_collectives(int cores, double wake_us);

struct Overheads {
  sim::Quantity op_overhead_us, wake_us, timer_overshoot_us;
};
// A chain of empty operations, two lanes that wait for each other in turn, a collective on a slow link.
Overheads probe_overheads();

// Two compute lanes of one rank, joined by a start→start edge; one class of operation timed while the other runs beside
// it. slowdown[a][b] = time of a beside b / time of a alone − 1. Zero, and said to be assumed, with fewer than 2 cores.
std::array<std::array<sim::Quantity, sim::kDemandClasses>, sim::kDemandClasses> probe_interference(int cores);

// sgemm on square matrices, one thread: the yardstick that `train` and `compare` print their rate against.
sim::Quantity probe_sgemm_GFLOPs(std::int64_t size);

}  // namespace stretto::calibrate
