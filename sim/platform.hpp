#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "sim/cost/cost.hpp"

namespace stretto::sim {

// Where a number comes from. Every number of a platform has one: a constant without a source is a defect.
struct Source {
  std::string kind = "measured";  // "measured", "published" or "assumed"
  std::string origin;             // the probe, the paper, the reason
  double spread_pct = 0;          // (max − min) / median over repeated measurements, median over the points
};

// One number with its source.
struct Quantity {
  double value = 0;
  Source source;
};

// A linear cost function: time_us = Σ coefficient · feature. The features belong to the kind of work
// (sim/cost/features).
struct CostFit {
  std::vector<double> coefficients;
  Source source;
  int points = 0;
  double median_error_pct = 0, p95_error_pct = 0;  // |predicted − measured| / measured over the points fitted
};

// What a machine costs: docs/platform.md is the file's specification. Made by `stretto calibrate`, read by the
// simulator.
struct Platform {
  std::string name;
  std::string device;             // as the machine names itself
  std::string date;               // of the measurement, ISO 8601
  int cores = 0;                  // that the ranks of one device share
  std::int64_t memory_bytes = 0;  // of one device
  // One core on square 1024: the peak that MFU is counted against, and how fast the cores were when this was measured.
  Quantity sgemm_GFLOPs;
  Quantity sgemm_filled_GFLOPs;          // the same with all cores busy
  std::map<std::string, CostFit> costs;  // by cost key: "gemm_nt_bias_f32"
  Quantity op_overhead_us, wake_us, timer_overshoot_us;
  std::array<std::array<Quantity, kDemandClasses>, kDemandClasses> slowdown;
  // Extra time of an operation when more ranks than cores take turns on a device (caches are cold at every turn), as a
  // share of its time alone, by class.
  std::array<Quantity, kDemandClasses> oversubscribed;
};

const char* name_of(DemandClass cls);

// Throws Error(input) as docs/platform.md says.
Platform read_platform(const std::string& path);
// Written atomically. Throws Error(runtime) with the path and the system's reason.
void write_platform(const std::string& path, const Platform& platform);

}  // namespace stretto::sim
