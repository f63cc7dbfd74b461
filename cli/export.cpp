#include "exec/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/commands.hpp"
#include "compare/inputs.hpp"

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

void export_huggingface(ExportOptions& options) {
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
  CLI::App* command = app.add_subcommand("export", "weights as other programs name them");
  options->files
      .add_input(*command, "SOURCE", options->source,
                 "a checkpoint that train wrote, or a scenario, whose weights before the first step are meant")
      ->required()
      ->transform([](const std::string& given) { return compare::scenario_path(given); });
  options->files
      .add_output(*command, "-o,--output", options->output,
                  "the folder to write, with config.json; where it ends in .safetensors the file of the weights alone")
      ->required();
  command->add_option("--set", options->set, "override a key of the scenario (repeatable)")->allow_extra_args(false);
  command->add_option("--format", options->format, "whose: huggingface (GPT-2 or Llama, as the model is)")
      ->check(CLI::IsMember({"huggingface"}));
  command->callback([options] { export_huggingface(*options); });
}

}  // namespace stretto::cli
