#include "ask/show.hpp"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/show_platform.hpp"
#include "model/overlap/gates.hpp"
#include "model/scenario/keys.hpp"
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
  ask::Asked asked(options);
  options.files.claim_outputs(asked.scenario);
  if (options.gates) return show_gates(options, ask::gates(asked));
  keep_within_free_memory();
  const Patience patience(asked.scenario);
  const ask::ShowAnswer answer = ask::show(asked);
  if (!options.json.is_standard()) std::cout << text_of(answer);
  if (!options.json.empty()) write_json(options.json, json_of(answer));
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
