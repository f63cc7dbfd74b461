#include "exec/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/commands.hpp"

namespace stretto::cli {
namespace {

struct ExportCommand {
  std::string checkpoint, format = "huggingface";
  Output output;
  Files files;
};

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportCommand>();
  CLI::App* command = app.add_subcommand("export", "a checkpoint's weights as other programs name them");
  options->files.add_input(*command, "CHECKPOINT", options->checkpoint, "a checkpoint that train wrote")->required();
  options->files.add_output(*command, "-o,--output", options->output, "the safetensors file to write")->required();
  command->add_option("--format", options->format, "whose names: huggingface (GPT-2 or Llama, as the model is)")
      ->check(CLI::IsMember({"huggingface"}));
  command->callback([options] {
    const std::string folder = std::filesystem::path(options->checkpoint).parent_path().string();
    options->files.claim_outputs({}, folder.empty() ? "." : folder);
    exec::export_to_huggingface(options->checkpoint, options->output.path());
    std::cout << fmt::format("wrote {}\n", options->output.name());
  });
}

}  // namespace stretto::cli
