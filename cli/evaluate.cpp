#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>

#include "base/memory.hpp"
#include "base/printable.hpp"
#include "cli/commands.hpp"
#include "cli/evaluation_text.hpp"
#include "cli/processes.hpp"
#include "cli/progress.hpp"
#include "model/overlap/overlap.hpp"
#include "model/verify/verify.hpp"

namespace stretto::cli {

std::string evaluation_text(const exec::Evaluation& e) {
  return fmt::format("validation loss {:.5f} (perplexity {:.2f}) after {} steps, over {} tokens\n", e.loss,
                     std::exp(e.loss), e.step, e.tokens);
}

namespace {

// Measures the loss of trained parameters.
void evaluate_as(const ScenarioOptions& options, ScenarioRun& run) {
  const Scenario& scenario = run.scenario;
  run.choose_fusions(options);
  std::optional<Patience> patience;
  if (run.is_first()) patience.emplace(scenario);
  const VerifiedSchedule verified = plan_and_verify(build_schedule(scenario, free_memory_bytes()));
  patience.reset();
  run.reserve_queues(verified.schedule);
  for (const std::string& note : run.notes) run.out << "note: " << note << "\n";
  exec::TrainOptions callbacks;
  callbacks.processes = run.processes;
  callbacks.on_message = [&](const std::string& line) { run.out << printable(line) << std::endl; };
  const exec::Machine machine = run.machine(static_cast<int>(scenario.cluster.cores_per_device));
  const auto executor = machine.make(verified, exec::run_options(scenario));
  const exec::Evaluation result = exec::evaluate(scenario, verified.schedule, *executor, callbacks);
  run.out << evaluation_text(result);
  if (!run.is_first()) return;
  write_json(
      options.json,
      {{"step", result.step}, {"loss", result.loss}, {"perplexity", std::exp(result.loss)}, {"tokens", result.tokens}});
}

void evaluate_command(const ScenarioOptions& options) {
  ScenarioCommand command;
  command.name = "evaluate";
  command.takes_one = true;
  run_ranked(
      options, command, [](const Scenario& scenario) { build_schedule(scenario, free_memory_bytes()); },
      [&](ScenarioRun& run) { evaluate_as(options, run); });
}

}  // namespace

void add_evaluate(CLI::App& app) {
  auto options = std::make_shared<ScenarioOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "the loss on validation data of a checkpoint, or of weights from elsewhere");
  add_scenario_options(*command, *options);
  add_json_option(*command, options->files, options->json);
  add_rank_options(*command, *options);
  add_mode_option(*command, *options);
  command->callback([options] { evaluate_command(*options); });
}

}  // namespace stretto::cli
