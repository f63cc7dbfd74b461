#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/machine.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// What is compared: every mode at every number of ranks.
struct Grid {
  Scenario scenario;               // with the cluster as it is on this kind of machine
  std::vector<std::string> modes;  // the plain one first: the others are measured against it
  std::vector<std::int64_t> ranks;
  std::vector<std::string> notes;  // what a mode or [compare] asks for and does not get, and why
  std::size_t streams = 0;         // lanes of all ranks here, in the schedule that has the most
};

// As the scenario says; where it says nothing all modes, and the ranks of its layout. Every schedule is built and
// costed once, so that what cannot be compared is said before anything runs: throws Error(input) with file, mode and
// ranks.
Grid grid_of(const Scenario& scenario, const sim::Platform& platform, const exec::Machine& machine);

}  // namespace stretto::compare
