#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "cli/commands.hpp"

namespace stretto::cli {
namespace {

std::atomic<bool> interrupt_seen{false};  // a signal handler can reach nothing else

void on_interrupt(int signal) {
  if (interrupt_seen.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

// A platform that comes with Stretto is found by its name.
std::string platform_path(const std::string& given) {
  return is_data_name(given) ? data_file("platforms", given) : std::filesystem::absolute(given).string();
}

// A scenario that comes with Stretto is found by its name, unless a file is called so.
std::string scenario_path(const std::string& given) {
  std::error_code ignored;
  if (!is_data_name(given) || std::filesystem::exists(given, ignored)) return given;
  const std::vector<std::string> modes = data_names("modes");
  return data_file(std::find(modes.begin(), modes.end(), given) == modes.end() ? "models" : "modes", given);
}

}  // namespace

void add_scenario_options(CLI::App& command, CommonOptions& options) {
  options.files
      .add_input(command, "SCENARIO", options.scenario,
                 "scenario file (docs/scenario.md), or the name of one that comes with Stretto")
      ->required()
      ->transform([](const std::string& given) { return scenario_path(given); });
  command.add_option("--set", options.set, "override a key: --set training.lr=3e-4 (repeatable)")
      ->allow_extra_args(false);
}

Scenario scenario_of(const CommonOptions& options, const std::vector<std::string>& further) {
  std::vector<std::string> set = options.set;
  set.insert(set.end(), further.begin(), further.end());
  // The platform says whether ranks share devices, so the scenario must know it.
  if (!options.platform.empty()) set.push_back("platform=" + platform_path(options.platform));
  return read_scenario(options.scenario, set);
}

void add_platform_option(CLI::App& command, CommonOptions& options) {
  options.files.add_input(
      command, "--platform", options.platform,
      "platform file (docs/platform.md); default: the scenario's, else what `stretto calibrate` wrote");
}

void add_json_option(CLI::App& command, Files& files, Output& json) {
  files.add_output(command, "--json", json, "write results as JSON to this file, - for standard output", true);
}

void add_trace_option(CLI::App& command, CommonOptions& options) {
  options.files.add_output(command, "--trace", options.trace, "write a trace that ui.perfetto.dev opens");
}

void add_html_option(CLI::App& command, CommonOptions& options) {
  options.files.add_output(command, "--html", options.html,
                           "write a page with charts and timelines: one file, opens in any browser");
}

void add_backend_option(CLI::App& command, std::string& backend) {
  command.add_option("--backend", backend, "what runs it: host, this machine's processor; cuda, its GPU")
      ->check(CLI::IsMember({"host", "cuda"}));
}

std::string default_platform_path(const std::string& backend) {
  namespace fs = std::filesystem;
  const std::string name = "stretto/" + backend + ".toml";
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != '\0')
    return (fs::path(data) / name).string();
  const char* home = std::getenv("HOME");
  return (fs::path(home != nullptr ? home : ".") / ".local/share" / name).string();
}

sim::Platform load_platform(const CommonOptions& options, const Scenario& scenario, const std::string& backend) {
  if (!options.platform.empty()) return sim::read_platform(platform_path(options.platform));
  if (!scenario.platform.empty()) return sim::read_platform(scenario.platform);
  const std::string path = default_platform_path(backend);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw input_error("no platform file: " + path + " does not exist; run `stretto calibrate" +
                      (backend == "host" ? "` (under a minute)" : " --backend " + backend + "` (minutes)") +
                      " or name one with --platform");
  return sim::read_platform(path);
}

void watch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}
bool interrupted() { return interrupt_seen; }

}  // namespace stretto::cli
