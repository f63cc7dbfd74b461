#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/ops/dtype.hpp"
#include "model/scenario.hpp"

namespace stretto {

// The rate for utilisation: all devices that work on a step, together.
struct PeakRate {
  double FLOPs_per_s = 0;  // 0: not known
  std::string source;      // data_sheet_of(), "sgemm", …
};
std::string data_sheet_of(Dtype type);  // "the data sheet's bf16 peak"

// Returns the peak of `devices` GPUs by the data sheet (report/data_sheet.hpp), dense, for products of that type; not
// known where the data sheets do not list the device, or have no figure for the type.
PeakRate data_sheet_peak(std::string_view device, std::int64_t devices, Dtype type);

// The rate of a step: the one definition of MFU and HFU, for simulate, train and profile (docs/mfu.md).
struct Throughput {
  double tokens_per_s = 0;             // of all devices
  double tokens_per_s_per_device = 0;  // of one device
  double FLOPs_per_s = 0;              // of all devices; only the model's FLOPs, without recomputation
  double TFLOPs_per_device = 0;        // the model's FLOPs of one device
  std::optional<double> mfu, hfu;      // shares of the peak, at most 1; nullopt: the peak is not known or is wrong
  std::optional<double> mfu_full_attention;  // mfu with every key of every query counted
  // FLOPs_per_s and mfu with only the pairs of tokens of one document counted, where sequences hold several documents
  // whose mean length is known: what the model needs. FLOPs_per_s and mfu count whole sequences, as frameworks do.
  std::optional<double> FLOPs_within_documents_per_s, mfu_within_documents;
  // why a share is left out although there is a peak: the share would be above 1
  std::string doubt;
};
Throughput throughput_of(const Scenario& scenario, double step_ms, std::int64_t devices, const PeakRate& peak);

}  // namespace stretto
