#pragma once
#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/linear_fit.hpp"
#include "calibrate/notebook.hpp"
#include "calibrate/probes/gpu.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

struct Calibration {
  sim::Platform platform;
  std::vector<Sample> samples;     // all that costs were fitted to
  std::vector<std::string> notes;  // what was left out, and what a user should know of how it was measured
};

// Measures this machine, in under a minute: runs every probe, fits every cost. `cores` that ranks will share; 0 = all.
// `progress` gets a line as each probe starts; it and `may_end`, which is called before every run, may throw to end the
// calibration: what `notebook` has by then is kept. Needs the machine to itself for honest figures.
Calibration calibrate_host(int cores, Notebook& notebook, const std::function<void(const std::string&)>& progress,
                           const MayEnd& may_end = {});

// Measures the GPU that ranks of this machine share, in some four minutes. As above; for tests with another
// machine and smaller sizes. `network`: what probe_nccl() measured between several. Throws Error(runtime) as
// make_cuda_executor() does.
Calibration calibrate_gpu(const Machine& machine, const GpuSizes& sizes,
                          const std::function<void(const std::string&)>& progress,
                          const std::vector<Sample>& network = {}, Notebook* notebook = nullptr);

std::string today();     // ISO 8601
std::string cpu_name();  // as the machine names it

}  // namespace stretto::calibrate
