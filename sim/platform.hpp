#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.hpp"
#include "sim/accelerator/accelerator.hpp"
#include "sim/demand_class.hpp"

namespace stretto::sim {

// One measurement: the features of the work, and the time it took.
struct MeasuredPoint {
  std::vector<double> features;
  double us = 0;
};

// A linear cost function: time_us = Σ coefficient · feature. The features belong to the kind of work
// (sim/cost/features). With `measured`, the time is corrected near those points (sim/cost/evaluate.hpp).
struct CostFit {
  std::vector<double> coefficients;
  Source source;
  int points = 0;
  double median_error_pct = 0, p95_error_pct = 0;  // predicted − measured| / measured over the fitted points
  double largest_us = 0;                           // largest time of the fitted points; 0: the file does not say
  std::vector<MeasuredPoint> measured = {};        // empty: only the fit is used
};

// A measured function of one number ≥ 0: straight lines from (0, 0) through its points, constant after the last. `at`
// rises strictly from above 0; both arrays have one length, and are not empty.
struct Curve {
  std::vector<double> at, value;
  Source source;
};
double value_of(const Curve& curve, double at);

// Further numbers of a GPU that ranks share.
struct Gpu {
  int sms = 0;
  int ctas = 0;          // thread blocks of a communication kernel whose communicator has no channels of its own
  Quantity gemm_TFLOPs;  // bf16, a large square: the peak for MFU
  // [class]: extra time as a share, as a function of the thread blocks of communication kernels on the device: of
  // compute concurrent with blocks that move data, of compute concurrent with blocks that wait for their link, and of
  // moving data concurrent with compute.
  std::array<Curve, kDemandClasses> beside_moving, beside_waiting, moving_beside;
  // Extra times as functions of the concurrent copies of the device's copy engines.
  std::array<Curve, kDemandClasses> beside_copying, copying_beside;
};

// The CPU of a GPU's node, over the x86 CPUs that profiles of frameworks were timed on: time of the same Python,
// and of the same C++, over theirs.
struct Cpu {
  Quantity python = {1, {}}, cpp = {1, {}};
};

// The cost model of a machine; docs/platform.md specifies the file. `stretto calibrate` makes it, the simulator reads
// it.
struct Platform {
  std::string name;
  std::string device;             // the machine's own name
  std::string date;               // date of the measurement, ISO 8601
  int cores = 0;                  // shared by the ranks of one device; on a GPU 1: one compute kernel at a time
  std::int64_t memory_bytes = 0;  // memory of one device
  double compute_capability = 0;  // of a GPU: 9.0 for H100; 0: not known
  std::optional<Gpu> gpu;         // absent for a host, which has the two yardsticks below and `oversubscribed`
  // A GPU of a cluster that was not calibrated here: the fields below are empty, and all costs follow from this one.
  std::optional<Accelerator> accelerator;
  Cpu cpu = {};  // next to an accelerator
  // One core on square 1024: the peak for MFU, and the core speed at calibration.
  Quantity sgemm_GFLOPs;
  Quantity sgemm_filled_GFLOPs;          // one core while all cores are busy
  std::map<std::string, CostFit> costs;  // [cost key]: "gemm_nt_bias_f32"
  Quantity op_overhead_us, wake_us, timer_overshoot_us;
  std::array<std::array<Quantity, kDemandClasses>, kDemandClasses> slowdown;
  // [class]: extra time of an operation when more ranks than cores share a device by time slices (caches are cold after
  // each switch), as a share of its time alone.
  std::array<Quantity, kDemandClasses> oversubscribed;
  std::vector<std::string> files;  // from which it was read, tables included; none: parsed from text
};

// Reads a platform file. Throws Error(input) as docs/platform.md says.
Platform read_platform(const std::string& path);
// Parses a platform from text; `name` stands for the file in messages, and its folder has the tables. For tests and
// fuzzing. Throws as read_platform.
Platform parse_platform(const std::string& text, const std::string& name);
// Writes the file atomically. Throws Error(runtime) with the path and the system's reason.
void write_platform(const std::string& path, const Platform& platform);

}  // namespace stretto::sim
