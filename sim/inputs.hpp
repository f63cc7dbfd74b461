#pragma once
#include <memory>
#include <vector>

#include "model/schedule/bind.hpp"
#include "model/schedule/partners.hpp"
#include "model/schedule/schedule.hpp"
#include "sim/cost/cost.hpp"
#include "sim/flat_program.hpp"

namespace stretto::sim {

// The inputs of a simulation, all borrowed: they must outlive the core and its components. `programs` and `flat` belong
// to the simulated ranks, in one order. In the core a rank is an index into them, and a lane is rank · lanes + LaneId.
struct SimInputs {
  const Schedule& schedule;
  const Costs& costs;
  const std::vector<BoundProgram>& programs;
  const std::vector<std::shared_ptr<const FlatProgram>>& flat;
  const Partners& partners;
  // Returns the costs of the program of simulated rank `rank`, an index into `programs`.
  const OpCosts& costs_of(std::uint32_t rank) const { return costs.of(programs[rank].rank); }
};

}  // namespace stretto::sim
