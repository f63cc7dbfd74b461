#pragma once
#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/measurements.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

// Numbers of a GPU and its links as its data sheet has them; what a base platform has otherwise where one is missing.
struct DataSheet {
  std::optional<double> peak_TFLOPs, hbm_GBps, memory_GiB, nvlink_GBps, network_GBps;  // as [accelerator] has them
  std::optional<std::int64_t> domain, sms;
};

// Where a part of a platform comes from, beside names of bases and kinds of defaults.
constexpr const char* kYours = "your files";
constexpr const char* kDataSheet = "data sheet";
constexpr const char* kMeasured = "measured here";

// A platform of measurements, and where each part of it comes from.
struct ImportedPlatform {
  sim::Platform platform;
  struct Part {
    std::string what;   // "gemm_sustained", "all_reduce on 8 GPUs"
    std::string value;  // "1.22", "27 sizes"
    std::string from;   // kYours, kDataSheet, kMeasured, "h100-sxm", or the kind of a default: "assumed", "derived"
  };
  std::string base;  // its name; "" without one
  std::vector<Part> parts;
  std::vector<std::string> notes;  // what of the files is not used, and how the GPU was measured
};

// The platform `name` of `measured` over `base`: series of collectives (an operation on so many GPUs of so many nodes)
// and GEMMs take the place of the base's; sizes beyond the measured ones have the base's times, multiplied by measured
// / base at the nearest. A sweep on a grid of three values or more of m, n and k, about as wide as the base's table,
// takes its place; of another the base's times are multiplied by measured / base, interpolated between its shapes.
// Without a base the data sheet must be whole, and the rest has the defaults of sim/accelerator/numbers.hpp.
//
// Where a domain has more than eight GPUs it spans hosts: nodes are counted as domains. Throws Error(input) for what
// contradicts the domain, and for what is missing.
ImportedPlatform import_platform(const std::string& name, const std::vector<Measurements>& measured,
                                 const std::optional<sim::Platform>& base, const DataSheet& sheet);

// The platform file, whose tables are in files of these names beside it.
std::string platform_text(const ImportedPlatform& imported, const std::string& gemm_file,
                          const std::string& collective_file);

}  // namespace stretto::calibrate
