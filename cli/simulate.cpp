#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ask/first_screen.hpp"
#include "ask/side_by_side.hpp"
#include "ask/simulate_text.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "report/trace.hpp"

namespace stretto::cli {
namespace {

struct SimulateOptions : CommonOptions {
  ask::SimulateOptions asked;
  bool lists_assumed = false, verbose = false;
  std::string color = "auto";
  std::vector<std::string> more;  // further scenarios, which are compared with the first
};

// Returns the first option that several scenarios do not take, "" for none.
std::string option_of_one(const SimulateOptions& options) {
  for (const auto& [is_given, name] :
       {std::pair(options.asked.modes, "--modes"), std::pair(options.asked.limits, "--limits"),
        std::pair(options.asked.fit, "--fit"), std::pair(options.lists_assumed, "--assumed"),
        std::pair(options.verbose, "--verbose"), std::pair(!options.trace.empty(), "--trace"),
        std::pair(!options.html.empty(), "--html")})
    if (is_given) return name;
  return "";
}

void compare_steps(const SimulateOptions& options) {
  if (const std::string option = option_of_one(options); !option.empty())
    throw input_error(option + ": expected one scenario, got " + std::to_string(options.more.size() + 1));
  // A name that is wrong is an error before anything is simulated.
  std::vector<ask::Asked> asked;
  asked.emplace_back(options);
  std::vector<Input> inputs;
  for (const std::string& name : options.more) {
    const std::size_t at = name.find('@');
    asked.emplace_back(ask::Request{name.substr(0, at), options.given.set,
                                    at == std::string::npos ? options.given.platform : name.substr(at + 1)});
    inputs.push_back({"SCENARIO", name.substr(0, at)});
  }
  options.files.claim_outputs(inputs);
  keep_within_free_memory();
  const ask::SideBySide steps = ask::side_by_side(std::move(asked), options.asked);
  const Ink ink = ink_of_output(options.color);
  print_screen(text_of(steps, static_cast<std::size_t>(ink.columns)), ink);
  write_json(options.json, json_of(steps));
}

void simulate_command(const SimulateOptions& options) {
  ask::Asked asked(options);
  options.files.claim_outputs(asked.scenario);
  keep_within_free_memory();
  const Patience patience(asked.scenario);
  const ask::SimulateAnswer answer = ask::simulate(asked, options.asked);
  const Ink ink = ink_of_output(options.color);
  print_screen(first_screen(asked, answer, ink), ink);
  if (options.verbose) std::cout << "\n" << details_text(answer);
  std::cout << further_text(answer, options.verbose, static_cast<std::size_t>(ink.columns))
            << (options.lists_assumed ? list_of(answer) : "");
  write_json(options.json, json_of(answer));
  const predict::PredictedStep& step = answer.step;
  if (!options.trace.empty())
    write_trace(options.trace.path(),
                {{"predicted " + step.schedule.name, &step.schedule, &step.result, &step.result.timeline}});
  if (!options.html.empty()) write_text(options.html, render_html(page_of(asked, answer)));
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  ask::SimulateOptions& asked = options->asked;
  CLI::App* command =
      app.add_subcommand("simulate", "predict the step: time, MFU, memory, exposed communication, what limits it");
  add_scenario_options(*command, *options);
  command
      ->add_option("MORE", options->more,
                   "further scenarios, or NAME@PLATFORM: all side by side, compared with the first")
      ->type_name("SCENARIO");
  add_question_options(*command, *options);
  add_platform_option(*command, *options);
  add_run_options(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_trace_option(*command, *options);
  add_html_option(*command, *options);
  command->add_option("--engine", asked.engine, "network: fluid (closed form) or simgrid (flows share links)")
      ->check(CLI::IsMember({"fluid", "simgrid"}));
  command->add_flag("--modes", asked.modes,
                    "also: every overlap mode that the layout allows, and the step without each knob");
  command->add_flag("--limits", asked.limits,
                    "also, on published GPUs: how the step changes with each number of the platform, on better "
                    "machines, and by single changes of the scenario");
  command->add_flag("--verbose", options->verbose, "also: every figure, memory by stage and part, what was simulated");
  add_color_option(*command, options->color);
  command->add_flag("--assumed", options->lists_assumed,
                    "also, of a model's name: every setting that was assumed, why, and where it is written");
  command->add_flag("--fit", asked.fit, "also: changes with which the step fits into memory, and the steps they give");
  command->add_option(
      "--backbone-GBps", asked.backbone_GBps,
      "one link that all traffic between ranks crosses, on GPUs of the tables all between nodes (inside an "
      "NVLink domain it does not act); 0: none; needs --engine simgrid");
  command->callback([options] {
    options->asked.timeline = !options->trace.empty() || !options->html.empty();
    options->more.empty() ? simulate_command(*options) : compare_steps(*options);
  });
}

}  // namespace stretto::cli
