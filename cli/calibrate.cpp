#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "report/table.hpp"

namespace stretto::cli {
namespace {

struct CalibrateOptions {
  std::string output, json;
  int cores = 0;
};

void calibrate_command(const CalibrateOptions& options) {
  const std::string path = options.output.empty() ? default_platform_path() : options.output;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty()) {
    std::error_code ignored;  // require_writable reports what matters
    std::filesystem::create_directories(parent, ignored);
  }
  require_writable(path);
  require_writable(options.json);
  const auto begin = std::chrono::steady_clock::now();
  Progress progress;
  const calibrate::Calibration calibration =
      calibrate::calibrate_host(options.cores, [&](const std::string& line) { progress.show(line); });
  progress.clear();
  const sim::Platform& platform = calibration.platform;
  sim::write_platform(path, platform);

  Table table({"cost", "points", "spread", "fit error, median", "95th pct"});
  nlohmann::json probes = nlohmann::json::array();
  for (const auto& [key, fit] : platform.costs) {
    table.add_row({key, std::to_string(fit.points), fmt::format("{:.1f}%", fit.source.spread_pct),
                   fmt::format("{:.1f}%", fit.median_error_pct), fmt::format("{:.1f}%", fit.p95_error_pct)});
    probes.push_back({{"name", key},
                      {"points", fit.points},
                      {"spread_pct", fit.source.spread_pct},
                      {"fit_median_error_pct", fit.median_error_pct},
                      {"fit_p95_error_pct", fit.p95_error_pct}});
  }
  std::cout << table.text()
            << fmt::format("\nissue {:.2f} us an operation, wake-up {:.1f} us, timer {:.1f} us late\n",
                           platform.op_overhead_us.value, platform.wake_us.value, platform.timer_overshoot_us.value);
  for (int a = 0; a < sim::kDemandClasses; ++a)
    for (int b = 0; b < sim::kDemandClasses; ++b)
      std::cout << fmt::format("{}{} beside {}: +{:.1f} %", b == 0 ? "" : ", ",
                               sim::name_of(static_cast<sim::DemandClass>(a)),
                               sim::name_of(static_cast<sim::DemandClass>(b)), 100 * platform.slowdown[a][b].value)
                << (b + 1 == sim::kDemandClasses ? "\n" : "");
  for (int a = 0; a < sim::kDemandClasses; ++a)
    std::cout << fmt::format("{}{} taking turns: +{:.1f} %", a == 0 ? "" : ", ",
                             sim::name_of(static_cast<sim::DemandClass>(a)), 100 * platform.oversubscribed[a].value);
  std::cout << fmt::format("\nwrote {} in {:.0f} s\n", path,
                           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  write_json(options.json, {{"platform", path}, {"probes", std::move(probes)}});
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand("calibrate", "measure this machine into a platform file");
  command->add_option("-o,--output", options->output, "platform file to write; default: " + default_platform_path());
  command->add_option("--cores", options->cores, "cores that ranks will share; default: all")
      ->check(CLI::Range(1, 4096));
  command->add_option("--json", options->json, "write results as JSON to this file, - for standard output");
  command->callback([options] { calibrate_command(*options); });
}

}  // namespace stretto::cli
