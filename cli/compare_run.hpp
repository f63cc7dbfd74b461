#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cli/ready_step.hpp"
#include "model/scenario.hpp"
#include "model/schedule/plan.hpp"
#include "report/comparison.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {

// Of the host, that ranks share: the scenario's, else the platform's.
int cores_of(const Scenario& scenario, const sim::Platform& platform);

// Both timelines of one row, kept for --trace and --html.
struct ComparedTimelines {
  std::string mode;
  std::int64_t ranks = 1;
  Schedule schedule;
  MemoryPlan plan;
  std::vector<BoundProgram> predicted_programs, measured_programs;
  Timeline predicted, measured;  // measured: the repeat with the median step time
};

struct CompareRun {
  Comparison comparison;
  std::vector<ComparedTimelines> timelines;  // in the order of comparison.rows
  bool complete = true;                      // false when `stop` said so: rows are those finished until then
};

// Predicts and measures every mode at every number of ranks. Per number of ranks all modes are built at once and run in
// turns, step by step, with a second copy of the plain schedule among them (A/A), so that a slow moment of the machine
// meets all of them. A turn is two steps back to back of which the second is timed: the steady period. Between them
// runs the sgemm yardstick: predictions are made for the speed that the cores had, where its readings tell that from
// the speed at calibration, and with the bursts that others took from the cores (DetourProbe); beside them as
// calibrated. What the hypervisor disturbed is measured again (Undisturbed).
//
// On a GPU (platform.gpu; `make` must be of the same kind) there are no yardsticks, predictions are for the GPU as it
// was calibrated, and ranks_per_device is not looked at.
//
// With `processes` each is a rank on a GPU of its own, communication is NCCL's as the platform knows it
// (Network::nccl), and there are as many ranks as processes. All of them call this; rank 0 gets the rows.
CompareRun run_compare(const Scenario& scenario, const sim::Platform& platform, const MakeExecutor& make,
                       const std::function<void(const std::string&)>& progress, const std::function<bool()>& stop,
                       launch::ProcessGroup* processes = nullptr);

}  // namespace stretto::cli
