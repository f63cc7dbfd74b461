#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {

// One file a command. Each adds its subcommand and options; its callback does the work and throws stretto::Error.
void add_simulate(CLI::App& app);
void add_train(CLI::App& app);
void add_profile(CLI::App& app);
void add_compare(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_show(CLI::App& app);
void add_export(CLI::App& app);

// ---- what commands share ----

struct CommonOptions {
  std::string scenario;
  std::vector<std::string> set;  // key=value
  std::string platform, json, trace, html;
};
// SCENARIO and --set; --platform, and --json, --trace and --html where the command has a use for them.
void add_scenario_options(CLI::App& command, CommonOptions& options);
void add_platform_option(CLI::App& command, CommonOptions& options);
void add_output_options(CLI::App& command, CommonOptions& options);

void add_backend_option(CLI::App& command, std::string& backend);  // --backend host|cuda

// Where `calibrate` writes and everything else looks when no file is named: $XDG_DATA_HOME/stretto/host.toml, or
// cuda.toml with that backend, by default in ~/.local/share/stretto.
std::string default_platform_path(const std::string& backend = "host");
// --platform, else the scenario's, else the default place. Throws Error(input) that says how to calibrate when there is
// none.
sim::Platform load_platform(const CommonOptions& options, const Scenario& scenario,
                            const std::string& backend = "host");

// For outputs named before minutes of work: Error(input) when `path` cannot be opened for writing. Leaves what is there
// as it is. "" and "-" are fine.
void require_writable(const std::string& path);
// Of all outputs that `options` names.
void require_writable(const CommonOptions& options);
// "-" is standard output. Throws Error(runtime) with the path and the system's reason. "" does nothing.
void write_text(const std::string& path, const std::string& text);
void write_json(const std::string& path, const nlohmann::json& value);

// Set by SIGINT and SIGTERM once `watch_interrupts` has been called; a second signal ends the program at once.
void watch_interrupts();
bool interrupted();

}  // namespace stretto::cli
