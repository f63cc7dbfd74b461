#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "exec/machine.hpp"
#include "model/scenario.hpp"
#include "model/schedule/bind.hpp"
#include "model/schedule/plan.hpp"
#include "report/comparison.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// Both timelines of one row.
struct RowTimelines {
  std::string mode;
  std::int64_t ranks = 1;
  Schedule schedule;
  MemoryPlan plan;
  std::vector<BoundProgram> predicted_programs, measured_programs;
  Timeline predicted, measured;  // measured: the repeat with the median step time
};

struct Result {
  Comparison comparison;
  std::vector<RowTimelines> timelines;  // in the order of comparison.rows
  bool complete = true;                 // false when `stop` said so: rows are those finished until then
};

// Predicts and measures every mode at every number of ranks: the main job. `machine` must be of the kind that the
// platform was measured on. `progress` gets a line before each turn, `stop` is asked whether to end.
//
// Per number of ranks all modes are built at once and run in turns, step by step, with a second copy of the plain
// schedule among them (A/A), so that a slow moment of the machine meets all of them. A turn is two steps back to back
// of which the second is timed: the steady period. On a host the sgemm yardstick runs between them: predictions are
// made for the speed that the cores had, where its readings tell that from the speed at calibration, and with the
// bursts that others took from the cores (DetourProbe); beside them as calibrated. What the hypervisor disturbed is
// measured again (Undisturbed).
//
// With Machine::processes each is a rank on a GPU of its own, communication is NCCL's as the platform knows it
// (Network::nccl), and there are as many ranks as processes. All of them call this; rank 0 gets the rows.
//
// Throws Error(input) for what the scenario asks for and cannot have, before anything is measured.
Result run(const Scenario& scenario, const sim::Platform& platform, const exec::Machine& machine,
           const std::function<void(const std::string& line)>& progress, const std::function<bool()>& stop);

}  // namespace stretto::compare
