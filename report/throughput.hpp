#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/scenario.hpp"
#include "model/schedule/dtype.hpp"

namespace stretto {

// The rate that utilisation counts against: of all devices that work on a step, together.
struct PeakRate {
  double FLOPs_per_s = 0;  // 0: not known
  std::string source;      // data_sheet_of(), "sgemm", …
};
std::string data_sheet_of(Dtype type);  // "the data sheet's bf16 peak"

// By the data sheet (report/data_sheet.hpp) of so many GPUs, dense, of products of that type; not known where it does
// not list the device, or has none of the type.
PeakRate data_sheet_peak(std::string_view device, std::int64_t devices, Dtype type);

// The rate of a step: the one definition of MFU and HFU, for simulate, train and profile (docs/mfu.md).
struct Throughput {
  double tokens_per_s = 0;             // of all devices
  double tokens_per_s_per_device = 0;  // of one
  double FLOPs_per_s = 0;              // of all devices; of the model, without recomputing
  double TFLOPs_per_device = 0;        // the same, of one
  std::optional<double> mfu, hfu;      // shares of the peak, at most 1; nullopt: not known, or the peak is no peak
  std::optional<double> mfu_full_attention;  // the same as mfu with every key of every query counted
  std::string doubt;                         // why a share is left out although there is a peak: it would be above 1
};
Throughput throughput_of(const Scenario& scenario, double step_ms, std::int64_t devices, const PeakRate& peak);

}  // namespace stretto
