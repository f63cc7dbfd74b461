#pragma once
#include <string>

#include "tests/simulate.hpp"
#include "tests/training.hpp"

namespace stretto::testing {

using Time = Picoseconds;

// A schedule on an ideal machine: enough cores, no interference, no overheads. Operations cost nothing unless set, so a
// simulated step equals a formula to the picosecond.
struct Ideal {
  explicit Ideal(const Scenario& scenario) : schedule(build_schedule(scenario)) {
    costs.compute.resize(schedule.operations.size());
    costs.collective.resize(schedule.operations.size());
    costs.link_bytes_per_s = 1e9;
  }
  // Sets the time of a computation or communication: a transfer takes this long from the arrival of the last member.
  void set(const std::string& name, Time time) { set(schedule.find_operation(name).value(), time); }
  void set(OpId op, Time time) { costs.compute[op].alone = costs.collective[op].latency = time; }
  sim::SimResult run(const sim::SimOptions& options = {}) const {
    sim::SimResult result = sim::simulate(schedule, costs, options);
    REQUIRE(result.steady);
    return result;
  }

  Schedule schedule;
  sim::Costs costs;
};

// The rows of the first rank in a step on an ideal machine, which must outlive this object.
struct Rows {
  explicit Rows(const Ideal& ideal) : schedule(ideal.schedule), result(ideal.run()) {}
  const TimelineRow& of(const std::string& name, std::int64_t layer = 0) const {
    const OpId id = schedule.find_operation(name).value();
    for (const TimelineRow& row : result.timeline.rows)
      if (const BoundOp& op = result.programs[0].ops[row.op]; op.op == id && op.layer == layer) return row;
    throw std::logic_error("no row of " + name);
  }
  const Schedule& schedule;
  sim::SimResult result;
};

}  // namespace stretto::testing
