#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/machine.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// The parameter grid of a comparison: every mode at every number of ranks.
struct Grid {
  Scenario scenario;               // with the cluster of this kind of machine
  std::vector<std::string> modes;  // the plain one, which is the baseline, comes first
  std::vector<std::int64_t> ranks;
  std::vector<std::vector<Schedule>> schedules;  // [ranks][mode]
  std::vector<std::string> notes;                // requests of a mode or of [compare] that have no effect, and why
  // lanes of all ranks in this process, for the schedule that has the most
  std::size_t streams = 0;
};

// Returns the grid of [compare]; by default all modes, and the number of ranks of the scenario's layout. Builds every
// schedule once and costs it, so that errors show before anything runs: throws Error(input) with file, mode and ranks.
Grid grid_of(const Scenario& scenario, const sim::Platform& platform, const exec::Machine& machine);

}  // namespace stretto::compare
