#pragma once
#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/measurements.hpp"
#include "sim/platform.hpp"

namespace stretto::calibrate {

// Numbers of a GPU and its links from its data sheet; a missing one is taken from the base platform.
struct DataSheet {
  // with the names and units of [accelerator]
  std::optional<double> peak_TFLOPs, hbm_GBps, memory_GiB, nvlink_GBps, network_GBps;
  std::optional<std::int64_t> domain, sms;
};

// Sources of a platform's parts, in addition to names of bases and kinds of defaults.
constexpr const char* kYours = "your files";
constexpr const char* kDataSheet = "data sheet";
constexpr const char* kMeasured = "measured here";

// A platform made from measurements, with the source of each part.
struct ImportedPlatform {
  sim::Platform platform;
  struct Part {
    std::string what;   // "gemm_sustained", "all_reduce on 8 GPUs"
    std::string value;  // "1.22", "27 sizes"
    std::string from;   // kYours, kDataSheet, kMeasured, "h100-sxm", or the kind of a default: "assumed", "derived"
  };
  std::string base;  // name of the base; "" without one
  std::vector<Part> parts;
  std::vector<std::string> notes;  // data of the files that is not used, and remarks on how the GPU was measured
};

// Makes the platform `name` from `measured` and `base`: measured series of collectives (an operation on a number of
// GPUs of a number of nodes) and GEMMs replace the base's; sizes beyond the measured ones have the base's times,
// multiplied by measured / base at the nearest. A sweep of GEMMs on a grid of three values or more of m, n and k, about
// as wide as the base's table, replaces that table; otherwise the base's times are multiplied by measured / base,
// interpolated between the measured shapes. Without a base the data sheet must be complete, and all other numbers have
// the defaults of sim/accelerator/numbers.hpp.
//
// Where a domain has more than eight GPUs it spans hosts: nodes are counted as domains. Throws Error(input) for data
// that contradicts the domain, and for missing data.
ImportedPlatform import_platform(const std::string& name, const std::vector<Measurements>& measured,
                                 const std::optional<sim::Platform>& base, const DataSheet& sheet);

// Returns the platform file's text; its tables are in files of these names in the same folder.
std::string platform_text(const ImportedPlatform& imported, const std::string& gemm_file,
                          const std::string& collective_file);

}  // namespace stretto::calibrate
