#pragma once
#include <functional>
#include <string>
#include <vector>

#include "calibrate/import/import_platform.hpp"
#include "cli/files.hpp"

namespace stretto::cli {

// `calibrate --import`: what others have measured, as a platform file over a published one.
struct MeasurementImport {
  std::vector<std::string> imports;  // as parse_import() takes them
  std::string base;
  calibrate::DataSheet sheet;
  Output gemms, collectives;  // tables beside the platform file
  bool is_asked() const;      // whether any of them was given
};
void add_import_options(CLI::App& command, Files& files, MeasurementImport& options);

// Writes the platform file `output` and its tables, prints where each part comes from. `measure`, where given, replaces
// numbers of the platform before it is written. Throws Error(input), and what `measure` throws.
using Measure = std::function<void(calibrate::ImportedPlatform&)>;
void import_measurements(MeasurementImport& options, const Files& files, Output& output, const Output& json,
                         const Measure& measure = {});

}  // namespace stretto::cli
