#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/show_platform.hpp"
#include "model/model_json.hpp"
#include "model/overlap/gates.hpp"
#include "model/overlap/overlap.hpp"
#include "model/scenario/keys.hpp"
#include "model/schedule/json.hpp"
#include "model/schedule/print.hpp"
#include "model/verify/verify.hpp"
#include "predict/fusions.hpp"
#include "predict/run.hpp"

namespace stretto::cli {
namespace {

struct ShowOptions : CommonOptions {
  bool gates = false, keys = false;
};

// Shows the gates of the scenario; without a scenario the reference of all gates.
void show_gates(const ShowOptions& options, const Gates& gates) {
  std::cout << (options.scenario.empty() ? gates_reference() : print_gates(gates));
  write_json(options.json, options.json.empty() ? nlohmann::json() : gates_json(gates));
}

void show(const ShowOptions& options) {
  if (options.scenario.empty()) {
    options.files.claim_outputs();
    if (options.keys) return void(std::cout << scenario_reference() << "\n## `[run]`\n\n" << predict::run_reference());
    return options.gates ? show_gates(options, all_gates()) : show_platform(options.platform, options.json);
  }
  Scenario scenario = scenario_of(options);
  options.files.claim_outputs(scenario);
  // The fusions are those of a run on this platform.
  if (!options.platform.empty())
    predict::open_fusions(scenario, options.scenario, options.set, load_platform(options, scenario)).apply(scenario);
  if (options.gates) return show_gates(options, gates_of(scenario));
  keep_within_free_memory();
  const Patience patience(scenario);
  const Schedule schedule = build_schedule(scenario, free_memory_bytes());
  const MemoryPlan plan = plan_and_verify(schedule).plan;
  if (!options.json.is_standard()) {
    std::cout << model_text(scenario.model) << print_schedule(schedule);
    for (std::size_t role = 0; role < plan.roles.size(); ++role)
      std::cout << (role == 0 ? "\n" : "") << "memory"
                << (plan.roles.size() > 1 ? " of " + schedule.programs[role].role : "") << ": "
                << plan.roles[role].bytes << " bytes a rank planned, " << plan.roles[role].bytes_without_sharing
                << " without sharing\n";
    std::cout << "verified: no race, no read of unwritten bytes, no deadlock\n";
    for (const std::string& note : schedule.notes) std::cout << "note: " << note << "\n";
  }
  if (options.json.empty()) return;
  nlohmann::json json = write_schedule_json(schedule);
  json["model"] = model_json(scenario.model);
  write_json(options.json, json);
}

}  // namespace

void add_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command =
      app.add_subcommand("show", "the schedule itself, readable, and what it needs; or a platform's numbers");
  add_scenario_options(*command, *options);
  command->get_option("SCENARIO")->required(false);
  add_platform_option(*command, *options);
  options->files.add_output(*command, "--json", options->json,
                            "write the schedule as JSON to this file, - for standard output", true);
  command->add_flag(
      "--gates", options->gates,
      "only what each overlap knob needs, and which of it is missing; without SCENARIO the reference of all knobs");
  command->add_flag("--keys", options->keys, "without SCENARIO: the reference of a scenario's keys");
  command->callback([options, command] {
    if (command->count("SCENARIO") == 0 && options->platform.empty() && !options->gates && !options->keys)
      throw input_error("SCENARIO is required, or --platform FILE or --gates; see `stretto show --help`");
    show(*options);
  });
}

}  // namespace stretto::cli
