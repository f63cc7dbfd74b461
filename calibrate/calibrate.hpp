#pragma once
#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

struct Calibration {
  sim::Platform platform;
  std::vector<Sample> samples;  // all that costs were fitted to
};

// Measures this machine, in under a minute: runs every probe, fits every cost. `cores` that ranks will share; 0 = all.
// `progress` gets a line as each probe starts. Needs the machine to itself for honest figures.
Calibration calibrate_host(int cores, const std::function<void(const std::string&)>& progress);

}  // namespace stretto::calibrate
