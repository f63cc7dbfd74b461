#include "exec/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/commands.hpp"
#include "compare/inputs.hpp"
#include "model/scenario/megatron.hpp"

namespace stretto::cli {
namespace {

struct ExportOptions {
  std::string source, format = "huggingface";
  std::vector<std::string> set;
  Output output;
  Files files;
};

// Scenarios are TOML files, or names of those that come with Stretto; anything else is to be a checkpoint.
bool is_scenario(const std::string& source) { return source.ends_with(".toml"); }

void require_output(const ExportOptions& options) {
  if (options.output.empty()) throw input_error("--output is required; see `stretto export --help`");
}

// What another program calls a scenario's settings.
void export_settings(const ExportOptions& options) {
  const Scenario scenario = compare::read_scenario_input(options.source, options.set, "");
  options.files.claim_outputs(scenario);
  const Translation made = options.format == "bridge" ? to_bridge(scenario) : to_megatron(scenario);
  for (const std::string& note : made.notes) std::cerr << "note: " << note << "\n";
  if (options.output.empty() || options.output.is_standard())
    std::cout << made.text;
  else
    write_text(options.output, made.text);
}

void export_huggingface(ExportOptions& options) {
  require_output(options);
  const std::string config = "config.json", tensors = "model.safetensors";
  const bool is_folder = !options.output.name().ends_with(".safetensors");
  if (is_folder) Files::set_folder(options.output, {config, tensors});
  const auto files = [&]() -> exec::HuggingFaceFiles {
    if (!is_folder) return {options.output.path(), ""};
    return {options.output.path(tensors), options.output.path(config)};
  };
  std::vector<std::string> notes;
  if (is_scenario(options.source)) {
    const Scenario scenario = compare::read_scenario_input(options.source, options.set, "");
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

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "weights or settings as other programs name them");
  options->files
      .add_input(*command, "SOURCE", options->source,
                 "a checkpoint that train wrote, or a scenario, whose weights before the first step are meant")
      ->required()
      ->transform([](const std::string& given) { return compare::scenario_path(given); });
  options->files.add_output(
      *command, "-o,--output", options->output,
      "huggingface: the folder to write, with config.json; where it ends in .safetensors the file of the "
      "weights alone. megatron, bridge: a file; default: standard output",
      true);
  command->add_option("--set", options->set, "override a key of the scenario (repeatable)")->allow_extra_args(false);
  command
      ->add_option("--format", options->format,
                   "huggingface: weights (GPT-2 or Llama, as the model is); megatron: the scenario as Megatron-LM's "
                   "command line; bridge: its overlap as Megatron-Bridge's CommOverlapConfig")
      ->check(CLI::IsMember({"huggingface", "megatron", "bridge"}));
  command->callback([options] {
    if (options->format == "huggingface") return export_huggingface(*options);
    export_settings(*options);
  });
}

}  // namespace stretto::cli
