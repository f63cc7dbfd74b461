#pragma once
#include <string>
#include <vector>

#include "model/overlap/left_out.hpp"
#include "model/scenario.hpp"
#include "predict/quick_step.hpp"
#include "report/advice.hpp"
#include "report/comparison.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// One predicted step of an overlap mode, with advice that compares it to the plain schedule.
struct PredictedMode {
  std::string mode;
  double step_ms = 0;
  BreakdownMs breakdown;                   // its parts add up to step_ms
  std::vector<std::string> communicators;  // names of communicators, in the order of BreakdownMs::exposed_by
  bool is_scenario = false;                // its knobs are the scenario's
  Advice advice;
};
// Returns every mode in modes_of(scenario), the plain schedule first. On a GPU of the tables a mode's saving has the
// interval of predict/gain.hpp; on a calibrated machine it is kUnsure_pct. `own`: the scenario's step, where it is
// built already.
std::vector<PredictedMode> predict_modes(const Scenario& scenario, const sim::Platform& platform,
                                         const sim::SimOptions& options, const QuickStep* own = nullptr);
// Return the table of `simulate --modes` and of modes that it does not try: `modes` and `modes_left_out` in
// docs/json.md.
Sheet modes_sheet(const std::vector<PredictedMode>& modes);
Sheet left_out_sheet(const std::vector<LeftOutMode>& modes);

// Difference between two runs of one schedule on a calibrated host: the noise floor in
// docs/measured/compare-quickstart.json.
constexpr double kUnsure_pct = 5;

}  // namespace stretto::predict
