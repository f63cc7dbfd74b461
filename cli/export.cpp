#include "exec/state/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "ask/settings.hpp"
#include "base/memory.hpp"
#include "base/new_file.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "model/build_schedule.hpp"
#include "model/scenario/overrides.hpp"
#include "model/verify/verify.hpp"
#include "predict/inputs.hpp"
#include "predict/predict_step.hpp"
#include "report/chakra.hpp"

namespace stretto::cli {
namespace {

struct ExportOptions {
  std::string source, format = "huggingface", platform;
  std::vector<std::string> set;
  Output output;
  Files files;
};

// Returns whether the source is a scenario: a TOML file, or the name of one that comes with Stretto. Any other source
// must be a checkpoint.
bool is_scenario(const std::string& source) { return source.ends_with(".toml"); }

void require_output(const ExportOptions& options) {
  if (options.output.empty()) throw input_error("--output is required; see `stretto export --help`");
}

// Writes a scenario's settings in another program's terms.
void export_settings(const ExportOptions& options) {
  const Scenario scenario = predict::read_scenario_input(options.source, options.set, "");
  options.files.claim_outputs(scenario);
  const Translation made = ask::exported({options.source, options.set}, options.format);
  for (const std::string& note : made.notes) std::cerr << "note: " << note << "\n";
  if (options.output.empty() || options.output.is_standard())
    std::cout << made.text;
  else
    write_text(options.output, made.text);
}

void require_not_interrupted() {
  if (interrupted()) throw runtime_failure("interrupted; nothing is written");
}

void export_huggingface(ExportOptions& options) {
  require_output(options);
  const std::string config = "config.json", tensors = "model.safetensors";
  const bool is_folder = !options.output.name().ends_with(".safetensors");
  if (is_folder) Files::set_folder(options.output, {config, tensors});
  const auto files = [&]() -> exec::HuggingFaceFiles {
    watch_interrupts();  // from here on an interruption leaves no partial file
    if (!is_folder) return {options.output.path(), "", require_not_interrupted};
    return {options.output.path(tensors), options.output.path(config), require_not_interrupted};
  };
  std::vector<std::string> notes;
  if (is_scenario(options.source)) {
    const Scenario scenario = predict::read_scenario_input(options.source, options.set, "");
    options.files.claim_outputs(scenario);
    notes = exec::export_initial(scenario, files());
  } else {
    if (!options.set.empty()) throw input_error("--set: expected a scenario to set it in, got a checkpoint");
    const std::string folder = std::filesystem::path(options.source).parent_path().string();
    options.files.claim_outputs({}, folder.empty() ? "." : folder);
    notes = exec::export_to_huggingface(options.source, files());
  }
  for (const std::string& note : notes) std::cout << "note: " << note << "\n";
  std::cout << fmt::format("wrote {}\n", options.output.name());
}

// Throws unless the disk has room for a file for each rank; many ranks may need more than there is.
void require_space(const std::string& folder, std::int64_t ranks, std::size_t rank_bytes) {
  const double GB = 1e-9, needed = double(ranks) * double(rank_bytes);
  const double free = double(std::filesystem::space(folder).available);
  if (needed > free)
    throw input_error(fmt::format("--output {}: traces of {} ranks take about {:.1f} GB, and {:.1f} GB are free there",
                                  folder, ranks, needed * GB, free * GB));
}

void export_chakra(ExportOptions& options) {
  require_output(options);
  if (!is_scenario(options.source)) throw input_error("--format chakra: expected a scenario, got " + options.source);
  ask::Asked asked({options.source, options.set, options.platform});
  const Scenario& scenario = asked.scenario;
  const std::string groups = "comm_groups.json";
  const auto name_of = [](std::int64_t rank) { return fmt::format("step.{}.et", rank); };
  std::vector<std::string> names = {groups};
  for (std::int64_t rank = 0; rank < scenario.parallel.ranks(); ++rank) names.push_back(name_of(rank));
  Files::set_folder(options.output, names);
  options.files.claim_outputs(scenario);
  // Readers take every trace of a folder, so it must not have traces of further ranks.
  const std::string next = name_of(scenario.parallel.ranks());
  if (std::filesystem::exists(std::filesystem::path(options.output.path()) / next))
    throw input_error(fmt::format("--output {}: {} is there, of a step of more ranks; expected a new folder",
                                  options.output.name(), next));
  keep_within_free_memory();
  const Patience patience(scenario);

  std::optional<predict::PredictedStep> step;
  Schedule plain;
  if (scenario.platform.empty()) {
    plain = build_schedule(scenario, free_memory_bytes());
    plan_and_verify(plain);
    std::cout << "note: no platform is named, so durations are 0\n";
  } else {
    asked.read_platform();
    step = predict::predict_step(scenario, *asked.platform);
  }
  const Schedule& schedule = step ? step->schedule : plain;
  for (const std::string& note : schedule.notes) std::cout << "note: " << note << "\n";
  const ChakraTraces traces =
      step ? ChakraTraces(schedule, StepTimes{step->result.folding, step->result.timeline}) : ChakraTraces(schedule);
  const std::int64_t ranks = schedule.mesh.ranks();
  std::string trace = traces.of(0);
  // From here on an interruption leaves no partial file.
  watch_interrupts();
  NewFolder folder(options.output.path());
  require_space(options.output.path(), ranks, trace.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (rank > 0) trace = traces.of(rank);
    require_not_interrupted();
    folder.add(options.output.path(name_of(rank)), trace);
  }
  folder.add(options.output.path(groups), traces.groups());
  folder.keep();
  std::cout << fmt::format("wrote {}: step.0.et to {} and {}\n", options.output.name(),
                           name_of(schedule.mesh.ranks() - 1), groups);
}

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "weights or settings as other programs name them");
  options->files
      .add_input(*command, "SOURCE", options->source,
                 "a checkpoint that train wrote, or a scenario, whose weights before the first step are meant")
      ->required()
      ->transform([](const std::string& given) { return predict::scenario_path(given); });
  options->files.add_output(
      *command, "-o,--output", options->output,
      "huggingface: the folder to write, with config.json; where it ends in .safetensors the file of the "
      "weights alone. chakra: the folder. megatron, bridge, torchtitan: a file; default: standard output",
      true);
  command->add_option("--set", options->set, "override a key of the scenario (repeatable)")
      ->transform([](const std::string& given) { return full_setting(given); })
      ->allow_extra_args(false);
  command
      ->add_option("--format", options->format,
                   "huggingface: weights (GPT-2 or Llama, as the model is); megatron: the scenario as Megatron-LM's "
                   "command line; bridge: its overlap as Megatron-Bridge's CommOverlapConfig; torchtitan: its "
                   "configuration in TOML; chakra: its step as "
                   "execution traces, one for each rank")
      ->check(CLI::IsMember({"huggingface", "megatron", "bridge", "torchtitan", "chakra"}));
  options->files.add_input(*command, "--platform", options->platform,
                           "chakra: the platform that durations are simulated on; default: the scenario's");
  command->callback([options] {
    if (options->format == "chakra") return export_chakra(*options);
    if (!options->platform.empty()) throw input_error("--platform: expected --format chakra, got " + options->format);
    if (options->format == "huggingface") return export_huggingface(*options);
    export_settings(*options);
  });
}

}  // namespace stretto::cli
