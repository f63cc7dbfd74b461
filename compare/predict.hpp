#pragma once
#include <string>
#include <vector>

#include "compare/turns.hpp"
#include "model/scenario.hpp"
#include "report/comparison.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// What a prediction is made for; by default the cores as they were at calibration.
struct Conditions {
  double core_speed = 1;  // against calibration
  sim::Disturbance disturbance;
};
// As the readings say; `calibrated_GFLOPs` is what the yardstick was then. Speed is 1 while that lies between the
// quartiles of the readings, which then cannot tell the two apart: correcting by less than readings scatter adds noise
// to predictions.
Conditions conditions_of(const CoreMonitor& cores, double calibrated_GFLOPs);
double speed_against(const std::vector<double>& readings_GFLOPs, double calibrated_GFLOPs);

sim::SimResult predict(const exec::ReadyStep& step, const sim::Platform& platform, const Conditions& conditions,
                       const sim::SimOptions& options);

// One step of every overlap mode that applies to the scenario's layout, and of the scenario as it is where it is none
// of them.
struct PredictedMode {
  std::string mode;
  double step_ms = 0, exposed_ms = 0;
  BreakdownMs breakdown;
};
std::vector<PredictedMode> predict_modes(const Scenario& scenario, const sim::Platform& platform,
                                         const sim::SimOptions& options);

}  // namespace stretto::compare
