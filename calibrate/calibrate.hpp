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
  std::vector<Sample> samples;     // the samples to which all costs were fitted
  std::vector<std::string> notes;  // what was left out, and remarks on the measurement for the user
};

// Measures this machine, in under a minute: runs every probe, fits every cost. `cores` is the number of cores that
// ranks will share; 0 = all. `progress` gets a line when each probe starts. `progress`, and `may_end`, which is called
// before every run, may throw to end the calibration: the results that `notebook` has by then are kept. Needs the
// machine to itself for reliable figures.
Calibration calibrate_host(int cores, Notebook& notebook, const std::function<void(const std::string&)>& progress,
                           const MayEnd& may_end = {});

// Measures the GPU that ranks of this machine share, in some four minutes, with arguments as above; tests pass another
// machine and smaller sizes. `network` is the result of probe_nccl() between several GPUs. Throws Error(runtime) as
// make_cuda_executor() does.
Calibration calibrate_gpu(const Machine& machine, const GpuSizes& sizes,
                          const std::function<void(const std::string&)>& progress,
                          const std::vector<Sample>& network = {}, Notebook* notebook = nullptr);

std::string today();     // ISO 8601
std::string cpu_name();  // the machine's own name

}  // namespace stretto::calibrate
