#include "cli/components.hpp"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "report/table.hpp"
#include "sim/platform.hpp"
#include "validate/validate_components.hpp"

namespace stretto::cli {

void add_component_options(CLI::App& command, Files& files, ComponentOptions& options) {
  CLI::Option* flag = command.add_flag("--components", options.is_asked,
                                       "tables of platforms: each GEMM and collective as predicted from the others");
  files.add_input(command, "--platform", options.platform, "with --components, one platform; default: all that ship")
      ->needs(flag);
}

void show_components(const ComponentOptions& options, const Output& json) {
  std::vector<std::string> files;
  if (is_data_name(options.platform))
    files.push_back(data_file("platforms", options.platform));
  else if (!options.platform.empty())
    files.push_back(options.platform);
  else
    for (const std::string& name : data_names("platforms")) files.push_back(data_file("platforms", name));
  Table table({"platform", "left out", "range", "points", "median", "p95"});
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& file : files) {
    const sim::Platform platform = sim::read_platform(file);
    if (!platform.accelerator) throw input_error(file + ": expected a platform with [accelerator], got none");
    for (const validate::ComponentErrors& errors : validate::validate_components(*platform.accelerator)) {
      table.add_row({printable(platform.name), errors.left_out, errors.range, fmt::format("{}", errors.points),
                     fmt::format("{:.1f} %", errors.median_pct), fmt::format("{:.1f} %", errors.p95_pct)});
      rows.push_back({{"platform", platform.name},
                      {"left_out", errors.left_out},
                      {"range", errors.range},
                      {"points", errors.points},
                      {"median_error_pct", errors.median_pct},
                      {"p95_error_pct", errors.p95_pct}});
    }
  }
  std::cout << table.text();
  write_json(json, {{"components", std::move(rows)}});
}

}  // namespace stretto::cli
