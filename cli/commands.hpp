#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "ask/request.hpp"
#include "cli/files.hpp"
#include "model/scenario.hpp"
#include "sim/platform.hpp"

namespace stretto::cli {

// One file for each command. Each adds its subcommand and options; its callback does the work and throws
// stretto::Error.
void add_simulate(CLI::App& app);
void add_train(CLI::App& app);
void add_evaluate(CLI::App& app);
void add_sample(CLI::App& app);
void add_profile(CLI::App& app);
void add_compare(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_show(CLI::App& app);
void add_list(CLI::App& app);
void add_export(CLI::App& app);
void add_import(CLI::App& app);
void add_validate(CLI::App& app);
void add_sweep(CLI::App& app);
void add_plan(CLI::App& app);
void add_diagnose(CLI::App& app);
void add_page(CLI::App& app);

// ---- shared by commands ----

struct CommonOptions : ask::Request {
  ask::Request given;        // as the options say it, before a question in names got its scenario
  bool takes_names = false;  // SCENARIO may be a model, with --gpus (add_question_options())
  Output json, trace, html;
  Files files;
};
// Returns the scenario with its overrides, on the platform that --platform names. Throws as ask::Asked does.
Scenario scenario_of(const CommonOptions& options);
// Add SCENARIO and --set; --platform, --json, --trace and --html where the command has a use for them.
void add_scenario_options(CLI::App& command, CommonOptions& options);
// Adds --gpus, --profile and --precision, with which SCENARIO is a model's name (habits/question.hpp); after
// add_scenario_options().
void add_question_options(CLI::App& command, CommonOptions& options);
void add_platform_option(CLI::App& command, CommonOptions& options);
void add_json_option(CLI::App& command, Files& files, Output& json);
void add_trace_option(CLI::App& command, CommonOptions& options);
void add_html_option(CLI::App& command, CommonOptions& options);
// Adds --color, for a first screen (ink_of_output()).
void add_color_option(CLI::App& command, std::string& when);
// Adds --tokens and --price, which set keys of the table [run].
void add_run_options(CLI::App& command, CommonOptions& options);

void add_backend_option(CLI::App& command, std::string& backend);  // --backend host|cuda

// Loads the platform of --platform, else the scenario's, else the one at the default path. Throws Error(input) that
// says how to calibrate when there is none.
sim::Platform load_platform(const CommonOptions& options, const Scenario& scenario,
                            const std::string& backend = "host");

// SIGINT and SIGTERM set the flag once `watch_interrupts` has been called; a second signal ends the program at once.
void watch_interrupts();
bool interrupted();

}  // namespace stretto::cli
