#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "habits/question.hpp"
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

// Reads "15T", "300B", "1.5e12". Throws Error(input) for anything else.
double count_of(const std::string& given) {
  const std::size_t digits =
      given.find_last_of("0123456789.") == std::string::npos ? 0 : given.find_last_of("0123456789.") + 1;
  const std::string unit = given.substr(digits);
  const double factor = unit.empty()                 ? 1
                        : unit == "K" || unit == "k" ? 1e3
                        : unit == "M"                ? 1e6
                        : unit == "B" || unit == "G" ? 1e9
                        : unit == "T"                ? 1e12
                                                     : 0;
  double number = 0;
  const auto [end, failure] = std::from_chars(given.data(), given.data() + digits, number);
  if (factor == 0 || failure != std::errc() || end != given.data() + digits || !(number > 0))
    throw input_error("--tokens: expected a number of tokens above 0 such as 15T, 300B or 1e12, got \"" + given + "\"");
  return number * factor;
}

}  // namespace

void add_scenario_options(CLI::App& command, CommonOptions& options) {
  options.files
      .add_input(command, "SCENARIO", options.scenario,
                 "scenario file (docs/scenario.md), or the name of one that comes with Stretto")
      ->required()
      ->transform(
          [&options](const std::string& given) { return options.takes_names ? given : predict::scenario_path(given); });
  command.add_option("--set", options.set, "override a key: --set training.lr=3e-4 (repeatable)")
      ->transform([](const std::string& given) { return full_setting(given); })
      ->allow_extra_args(false);
}

Scenario scenario_of(const CommonOptions& options) { return ask::Asked(options).scenario; }

void add_question_options(CLI::App& command, CommonOptions& options) {
  options.takes_names = true;
  command
      .add_option_function<std::int64_t>(
          "--gpus", [&options](const std::int64_t& gpus) { options.set.push_back("gpus=" + std::to_string(gpus)); },
          "number of GPUs: SCENARIO is the name of a model (`stretto list models`)")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option_function<std::string>(
      "--profile", [&options](const std::string& profile) { options.set.push_back("profile=" + profile); },
      "the framework (`stretto list profiles`); default: the scenario's, of a model that of its recipe");
  command
      .add_option_function<std::string>(
          "--precision",
          [&options](const std::string& precision) { options.set.push_back("low_precision=" + precision); },
          "with --gpus, the precision of products; default: bf16")
      ->check(CLI::IsMember({"bf16", "fp8_cs", "fp8_ds", "fp8_sc", "fp8_mx", "nvfp4"}));
  command.get_option("SCENARIO")
      ->description(
          "scenario file (docs/scenario.md), the name of one that comes with Stretto, or with --gpus a model's name");
  command.parse_complete_callback([&options, &command] {
    if (command.count("SCENARIO") == 0) return;
    if (command.count("--precision") > 0 && command.count("--gpus") == 0)
      throw input_error(
          "--precision: expected --gpus N and a model's name with it; of a scenario --set training.… says it");
    options.given = options;
    static_cast<ask::Request&>(options) = ask::found(options);
    if (habits::answer_of(options.scenario) == nullptr) options.scenario = predict::scenario_path(options.scenario);
  });
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

void add_color_option(CLI::App& command, std::string& when) {
  command.add_option("--color", when, "colours of the first screen: auto (on a terminal), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

void add_run_options(CLI::App& command, CommonOptions& options) {
  command.add_option_function<std::string>(
      "--tokens",
      [&options](const std::string& given) {
        options.set.push_back(fmt::format("run.tokens={:.17g}", count_of(given)));
      },
      "tokens of the whole training, 15T or 300B: how many days and GPU-hours");
  command.add_option_function<double>(
      "--price",
      [&options](const double& price) { options.set.push_back(fmt::format("run.price_per_gpu_hour={:.17g}", price)); },
      "with --tokens, the price of a GPU-hour, in any currency: what the training costs");
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
