#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/machine.hpp"
#include "model/scenario.hpp"
#include "model/schedule/bound_step.hpp"
#include "model/schedule/plan.hpp"
#include "report/comparison.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// The predicted and the measured timeline of one row of the table.
struct RowTimelines {
  std::string mode;
  std::int64_t ranks = 1;
  Schedule schedule;
  MemoryPlan plan;
  BoundStep predicted_step, measured_step;
  Timeline predicted, measured;  // measured: the repeat with the median step time
};

struct Result {
  Comparison comparison;
  std::vector<RowTimelines> timelines;  // in the order of comparison.rows
  bool complete = true;                 // false after `stop`: only rows that were finished are there
};

// Predicts and measures every mode at every number of ranks. `machine` must be of the kind on which the platform was
// measured. `progress` gets a line before each turn; the run ends early when `stop` returns true.
//
// For each number of ranks all modes are built at once and measured in turns, interleaved step by step, so that a slow
// moment of the machine affects all of them. A second copy of the plain schedule takes part (A/A test). A turn is two
// steps back to back; the second is timed: the steady period. On a host the sgemm yardstick runs between the steps.
// Predictions are made for the core speed that it read, if that differs significantly from the speed at calibration,
// and for the system noise that DetourProbe read; a second prediction is made for conditions as calibrated. Steps that
// the hypervisor disturbed are measured again (Undisturbed).
//
// With Machine::processes each process is a rank on its own GPU, communication costs are those of NCCL (Network::nccl),
// and there are as many ranks as processes. All processes call this; rank 0 gets the rows.
//
// Throws Error(input) before anything is measured when the scenario asks for something impossible.
Result run(const Scenario& scenario, const sim::Platform& platform, const exec::Machine& machine,
           const std::function<void(const std::string& line)>& progress, const std::function<bool()>& stop);

}  // namespace stretto::compare
