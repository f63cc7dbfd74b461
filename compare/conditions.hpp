#pragma once
#include <vector>

#include "compare/turns.hpp"
#include "sim/engine.hpp"
#include "sim/platform.hpp"

namespace stretto::compare {

// The state of the cores that a prediction assumes; the default is the state at calibration.
struct Conditions {
  double core_speed = 1;  // relative to calibration
  sim::Disturbance disturbance;
};
// Returns conditions from the monitor's readings; `calibrated_GFLOPs` is the yardstick's reading at calibration. The
// speed is 1 when that lies between the quartiles of the readings: a correction smaller than their scatter would only
// add noise.
Conditions conditions_of(const CoreMonitor& cores, double calibrated_GFLOPs);
double speed_against(const std::vector<double>& readings_GFLOPs, double calibrated_GFLOPs);

sim::SimResult predict(const exec::ReadyStep& step, const sim::Platform& platform, const Conditions& conditions,
                       const sim::SimOptions& options);

}  // namespace stretto::compare
