#pragma once
#include <functional>
#include <string>
#include <vector>

#include "calibrate/import/import_platform.hpp"
#include "cli/files.hpp"

namespace stretto::cli {

// `calibrate --import`: turns other people's measurements into a platform file over a published one.
struct MeasurementImport {
  std::vector<std::string> imports;  // arguments of parse_import()
  std::string base;
  calibrate::DataSheet sheet;
  Output gemms, collectives;  // tables in the folder of the platform file
  Output host;                // [host.us] of a profile, of a trace, in that folder
  bool is_asked() const;      // whether any of the options was given
};
void add_import_options(CLI::App& command, Files& files, MeasurementImport& options);

// Writes the platform file `output` and its tables, and prints the source of each part. `measure`, where given,
// replaces numbers of the platform before it is written. Throws Error(input), and what `measure` throws.
using Measure = std::function<void(calibrate::ImportedPlatform&)>;
void import_measurements(MeasurementImport& options, const Files& files, Output& output, const Output& json,
                         const Measure& measure = {});

}  // namespace stretto::cli
