#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

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

}  // namespace

void add_scenario_options(CLI::App& command, CommonOptions& options) {
  command.add_option("SCENARIO", options.scenario, "scenario file (docs/scenario.md)")->required();
  command.add_option("--set", options.set, "override a key: --set training.lr=3e-4 (repeatable)")
      ->allow_extra_args(false);
}

void add_platform_option(CLI::App& command, CommonOptions& options) {
  command.add_option("--platform", options.platform,
                     "platform file (docs/platform.md); default: the scenario's, else what `stretto calibrate` wrote");
}

void add_output_options(CLI::App& command, CommonOptions& options) {
  command.add_option("--json", options.json, "write results as JSON to this file, - for standard output");
  command.add_option("--trace", options.trace, "write a trace that ui.perfetto.dev opens");
  command.add_option("--html", options.html, "write a page with charts and timelines: one file, opens in any browser");
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
  if (!options.platform.empty()) return sim::read_platform(options.platform);
  if (!scenario.platform.empty()) return sim::read_platform(scenario.platform);
  const std::string path = default_platform_path(backend);
  if (!std::filesystem::exists(path))
    throw input_error("no platform file: " + path + " does not exist; run `stretto calibrate" +
                      (backend == "host" ? "` (under a minute)" : " --backend " + backend + "` (minutes)") +
                      " or name one with --platform");
  return sim::read_platform(path);
}

void require_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) throw input_error(path + ": cannot be written: " + std::strerror(errno));
  if (!existed) std::filesystem::remove(path, ignored);
}

void require_writable(const CommonOptions& options) {
  for (const std::string& path : {options.json, options.trace, options.html}) require_writable(path);
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.flush();
  if (!file) throw runtime_failure(path + ": cannot be written: " + std::strerror(errno));
}

void write_json(const std::string& path, const nlohmann::json& value) { write_text(path, value.dump(2) + "\n"); }

void watch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}
bool interrupted() { return interrupt_seen; }

}  // namespace stretto::cli
