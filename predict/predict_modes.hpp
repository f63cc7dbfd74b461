#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "report/advice.hpp"
#include "report/comparison.hpp"
#include "report/table.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::predict {

// One step of an overlap mode, predicted, and what that says of the mode against the plain schedule.
struct PredictedMode {
  std::string mode;
  double step_ms = 0;
  BreakdownMs breakdown;                   // its parts add up to step_ms
  std::vector<std::string> communicators;  // names, in the order of BreakdownMs::exposed_by
  bool is_scenario = false;                // its knobs are as the scenario has them
  Advice advice;
};
// Every mode in modes_of(scenario), the plain schedule first. On a GPU of the tables what a mode saves is uncertain by
// what the constants' intervals make of it (predict/constants.hpp); on a calibrated machine by kUnsure_pct.
std::vector<PredictedMode> predict_modes(const Scenario& scenario, const sim::Platform& platform,
                                         const sim::SimOptions& options);
// The table of `simulate --modes`, and `modes` of `simulate` in docs/json.md.
Table modes_table(const std::vector<PredictedMode>& modes);
nlohmann::json modes_json(const std::vector<PredictedMode>& modes);

// Two runs of one schedule on a calibrated host differ by so much: the noise floor in
// docs/measured/compare-quickstart.json.
constexpr double kUnsure_pct = 5;

}  // namespace stretto::predict
