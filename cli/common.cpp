#include <atomic>
#include <csignal>
#include <utility>

#include "cli/commands.hpp"
#include "model/scenario/overrides.hpp"
#include "predict/inputs.hpp"

namespace stretto::cli {
namespace {

std::atomic<bool> interrupt_seen{false};  // a signal handler can access nothing else

void on_interrupt(int signal) {
  if (interrupt_seen.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void add_scenario_options(CLI::App& command, CommonOptions& options) {
  options.files
      .add_input(command, "SCENARIO", options.scenario,
                 "scenario file (docs/scenario.md), or the name of one that comes with Stretto")
      ->required()
      ->transform([](const std::string& given) { return predict::scenario_path(given); });
  command.add_option("--set", options.set, "override a key: --set training.lr=3e-4 (repeatable)")
      ->transform([](const std::string& given) { return full_setting(given); })
      ->allow_extra_args(false);
}

Scenario scenario_of(const CommonOptions& options) { return ask::Asked(options).scenario; }

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

sim::Platform load_platform(const CommonOptions& options, const Scenario& scenario, const std::string& backend) {
  return predict::read_platform_input(options.platform, scenario, backend);
}

void watch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}
bool interrupted() { return interrupt_seen; }

}  // namespace stretto::cli
